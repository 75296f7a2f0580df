//! How much memory this process can still use: free memory, and page cache that the system would give up for it.

/// The bytes that are available, within the limits of all control groups of this process. None if the system does not
/// say.
#[cfg(target_os = "linux")]
pub fn bytes() -> Option<u64> {
    let whole = of_machine(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(groups.lines().filter_map(of_group).fold(whole, u64::min))
}

/// The bytes that are available: other systems are not asked.
#[cfg(not(target_os = "linux"))]
pub fn bytes() -> Option<u64> {
    None
}

/// `MemAvailable` in the text of `/proc/meminfo`.
#[cfg(target_os = "linux")]
fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the control group in a line of `/proc/self/cgroup`, and the groups that contain it, leave to this process.
#[cfg(target_os = "linux")]
fn of_group(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    let (root, limit, used) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
        "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        _ => return None,
    };
    let inside = std::path::Path::new(group.trim_start_matches('/'));
    let left = inside.ancestors().filter_map(|group| {
        let read = |name| std::fs::read_to_string(std::path::Path::new(root).join(group).join(name)).ok();
        left_of(&read(limit)?, &read(used)?, &read("memory.stat").unwrap_or_default())
    });
    left.min()
}

/// What is left of a limit: all but what is used, without the pages of files, which the system can give up.
#[cfg(target_os = "linux")]
fn left_of(limit: &str, used: &str, stat: &str) -> Option<u64> {
    // A group without a limit has the word "max".
    let (limit, used) = (limit.trim().parse::<u64>().ok()?, used.trim().parse::<u64>().ok()?);
    let number = |name| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let files = number("active_file ").unwrap_or(0).saturating_add(number("inactive_file ").unwrap_or(0));
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_how_much_there_is() {
        assert_eq!(of_machine("MemFree: 1 kB\nMemAvailable:   20 kB\n"), Some(20 << 10));
        assert_eq!(of_machine("MemFree: 1 kB\n"), None);
        assert_eq!(of_machine("MemAvailable: 99999999999999999999 kB\n"), None);
        assert!(bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn pages_of_files_count_as_left() {
        let stat = "anon 5\nactive_file 30\ninactive_file 20\n";
        assert_eq!(left_of("100\n", "70\n", stat), Some(80));
        assert_eq!(left_of("100", "70", ""), Some(30));
        assert_eq!(left_of("100", "700", stat), Some(0));
        assert_eq!(left_of("max\n", "70\n", stat), None);
    }

    #[test]
    fn lines_of_other_controllers_say_nothing() {
        assert_eq!(of_group("5:cpu,cpuacct:/"), None);
        assert_eq!(of_group("nonsense"), None);
    }
}
