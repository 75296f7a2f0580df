use super::*;
use crate::storage::output::Output;
use crate::storage::publish::Staged;
use crate::storage::temporary::Owner;
use std::sync::Arc;

fn no_locks(_: &File) -> std::result::Result<(), TryLockError> {
    Err(TryLockError::Error(ErrorKind::Unsupported.into()))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a killed process leaves: a file whose lock is released.
fn kill(owner: &Arc<Owner>, target: &Path, times: usize) -> Vec<PathBuf> {
    (0..times).map(|_| owner.create(target).unwrap().1.keep().unwrap()).collect()
}

fn states(search: &Search) -> Vec<State> {
    search.found.iter().map(|file| file.state).collect()
}

fn of<'a>(folder: &'a Path, targets: &'a [OsString]) -> Wanted<'a> {
    Wanted { folder, targets: Some(targets) }
}

fn any(_: &Path) -> bool {
    true
}

#[cfg(unix)]
#[test]
fn files_of_a_living_owner_stay_and_those_of_a_dead_one_go() {
    let dir = tempfile::tempdir().unwrap();
    let (target, targets) = (dir.path().join("a.ffr"), [OsString::from("a.ffr")]);
    let owner = Arc::new(Owner::default());
    let left = kill(&owner, &target, 5);
    assert_eq!(states(&remove(of(dir.path(), &targets), &any).unwrap()), [State::Alive; 5]);
    assert_eq!(names(dir.path()).len(), 5);
    drop(owner);
    assert_eq!(states(&find(of(dir.path(), &targets)).unwrap()), [State::Stale; 5]);
    let chosen = |path: &Path| path == left[3];
    let some = remove(of(dir.path(), &targets), &chosen).unwrap();
    assert_eq!(some.found.iter().filter(|file| file.state == State::Removed).count(), 1);
    assert_eq!(states(&remove(of(dir.path(), &targets), &any).unwrap()), [State::Removed; 4]);
    assert!(names(dir.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn a_file_is_alive_from_its_creation_until_it_is_published_or_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (target, targets) = (dir.path().join("a.ffr"), [OsString::from("a.ffr")]);
    let alive = |when: &str| {
        let found = states(&remove(of(dir.path(), &targets), &any).unwrap());
        assert!(!found.is_empty() && found.iter().all(|&state| state == State::Alive), "{when}: {found:?}");
    };
    let owner = Arc::default();
    let mut first = Staged::create_shard(&target, true, &owner).unwrap();
    let second = Staged::create_shard(&target, true, &owner).unwrap();
    drop(owner);
    alive("created");
    first.write_all(b"bytes").unwrap();
    let spool = first.create_spool().unwrap();
    alive("written");
    drop(spool);
    let first = first.seal().unwrap();
    alive("the leader is sealed");
    let second = second.seal().unwrap();
    alive("all are sealed");
    drop(second);
    alive("one is discarded");
    first.publish().unwrap();
    assert_eq!(names(dir.path()), ["a.ffr"]);
}

#[cfg(unix)]
#[test]
fn only_files_of_the_target_are_found_even_if_names_are_long_and_begin_and_end_alike() {
    let dir = tempfile::tempdir().unwrap();
    let long = |middle: &str| format!("{}{middle}{}", "b".repeat(60), "e".repeat(60));
    let all = ["a.ffr", "aa.ffr", "a", "a.ffr.ffr", ".a.ffr", "ü.ffr", "a b.ffr", &long("1"), &long("2")];
    for name in all {
        kill(&Arc::default(), &dir.path().join(name), 2);
    }
    for name in all {
        let search = find(of(dir.path(), &[OsString::from(name)])).unwrap();
        assert_eq!(states(&search), [State::Stale; 2], "{name}");
        assert_eq!(search.names, 2 * all.len());
    }
    assert_eq!(find(Wanted { folder: dir.path(), targets: None }).unwrap().found.len(), 2 * all.len());
    remove(of(dir.path(), &[OsString::from(long("1"))]), &any).unwrap();
    assert_eq!(names(dir.path()).len(), 2 * all.len() - 2);
}

#[test]
fn where_locks_do_not_work_nothing_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let targets = [OsString::from("a.ffr")];
    // The writer could lock, this process cannot.
    kill(&Arc::default(), &dir.path().join("a.ffr"), 2);
    // The writer could not lock. This process can.
    kill(&Arc::new(Owner::locking(no_locks)), &dir.path().join("a.ffr"), 2);
    let found = search(of(dir.path(), &targets), &any, no_locks).unwrap();
    assert_eq!(found.found.len(), 4);
    assert!(found.found.iter().all(|file| matches!(file.state, State::Unknown(_))), "{found:?}");
    let found = remove(of(dir.path(), &targets), &any).unwrap();
    let unknown = found.found.iter().filter(|file| matches!(file.state, State::Unknown(_))).count();
    assert_eq!(unknown, if cfg!(unix) { 2 } else { 4 }, "{found:?}");
    assert_eq!(names(dir.path()).len(), unknown);
}

#[test]
fn names_that_are_not_ours_and_those_of_earlier_versions_stay() {
    let dir = tempfile::tempdir().unwrap();
    let hash = "0123456789abcdef";
    let (token, short) = ("0123456789abcdef0123", "0123456789abcdef012");
    let foreign = [
        ".tmp",
        "..tmp",
        "a.ffr.tmp",
        ".a.ffr.tmp",
        ".a.ffr.old",
        ".a.ffr.123456789.tmp",
        ".a.ffr.12345.78.tmp",
        &format!(".a.ffr.{hash}_{short}_0.tmp"),
        &format!(".a.ffr.{hash}_{token}_.tmp"),
        &format!(".a.ffr.{hash}_{token}_x.tmp"),
        &format!(".a.ffr.{hash}_{token}_-1.tmp"),
        &format!(".a.ffr.{hash}_{token}_0_0.tmp"),
        &format!(".a.ffr.{hash}_{token}_99999999999999999999.tmp"),
        &format!(".a.ffr.{hash}_{token}_0s.tmp"),
        &format!("{hash}_{token}_0.tmp"),
        &format!(".{hash}_{token}_0.tmp"),
    ];
    for name in foreign {
        std::fs::write(dir.path().join(name), b"bytes").unwrap();
    }
    std::fs::write(dir.path().join(".a.ffr.x8f2kq1z.tmp"), b"bytes").unwrap();
    let found = remove(Wanted { folder: dir.path(), targets: None }, &any).unwrap();
    assert_eq!(found.found.len(), 1, "{found:?}");
    assert!(matches!(found.found[0].state, State::Unknown(why) if why.contains("earlier version")));
    assert_eq!(names(dir.path()).len(), foreign.len() + 1);
}

#[cfg(unix)]
#[test]
fn a_file_without_its_leader_is_stale() {
    let dir = tempfile::tempdir().unwrap();
    let left = kill(&Arc::default(), &dir.path().join("a.ffr"), 3);
    std::fs::remove_file(&left[0]).unwrap();
    let found = remove(of(dir.path(), &[OsString::from("a.ffr")]), &any).unwrap();
    assert_eq!(states(&found), [State::Removed; 2]);
}

#[cfg(unix)]
#[test]
fn files_with_one_owner_and_different_targets_share_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let owner = Arc::new(Owner::default());
    kill(&owner, &dir.path().join("a.ffr"), 1);
    kill(&owner, &dir.path().join("b.ffr"), 1);
    let b = [OsString::from("b.ffr")];
    assert_eq!(states(&remove(of(dir.path(), &b), &any).unwrap()), [State::Alive]);
    drop(owner);
    assert_eq!(states(&remove(of(dir.path(), &b), &any).unwrap()), [State::Removed]);
    assert_eq!(states(&remove(of(dir.path(), &[OsString::from("a.ffr")]), &any).unwrap()), [State::Removed]);
}

#[cfg(unix)]
#[test]
fn a_link_with_the_name_of_a_temporary_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let left = kill(&Arc::default(), &dir.path().join("a.ffr"), 1);
    std::fs::rename(&left[0], dir.path().join("mine")).unwrap();
    std::os::unix::fs::symlink("mine", &left[0]).unwrap();
    assert!(remove(of(dir.path(), &[OsString::from("a.ffr")]), &any).unwrap().found.is_empty());
    assert_eq!(names(dir.path()).len(), 2);
}

/// A process that cleans up locks the new leader before its owner does, or removes it.
#[cfg(unix)]
#[test]
fn an_owner_whose_new_leader_is_taken_for_a_stale_one_creates_another() {
    use std::cell::RefCell;
    thread_local! { static TAKEN: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) } }
    // The first leader is locked by another open file, the second one is removed before it is locked.
    fn taken(file: &File) -> std::result::Result<(), TryLockError> {
        let path =
            std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))).unwrap();
        TAKEN.with_borrow_mut(|taken| match taken.len() {
            0 => {
                taken.push(File::open(&path).unwrap());
                taken[0].try_lock().unwrap();
            }
            1 => {
                std::fs::remove_file(&path).unwrap();
                taken.push(File::open("/dev/null").unwrap());
            }
            _ => {}
        });
        file.try_lock()
    }
    let dir = tempfile::tempdir().unwrap();
    let owner = Arc::new(Owner::locking(taken));
    let (_file, temp, number) = owner.create(&dir.path().join("a.ffr")).unwrap();
    assert_eq!(number, 0);
    assert_eq!(names(dir.path()), [temp.file_name().unwrap().to_str().unwrap()]);
    assert_eq!(states(&find(of(dir.path(), &[OsString::from("a.ffr")])).unwrap()), [State::Alive]);
}

/// Owners create and drop files, others leave theirs behind, and several threads clean up, all at once.
#[cfg(unix)]
#[test]
fn many_who_clean_up_at_once_take_nothing_from_the_living_and_leave_nothing_of_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let (target, targets) = (dir.path().join("a.ffr"), [OsString::from("a.ffr")]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..60 {
                    let owner = Arc::default();
                    let mut staged = Staged::create_shard(&target, false, &owner).unwrap();
                    let more = Staged::create_shard(&target, false, &owner).unwrap();
                    staged.write_all(b"mine").unwrap();
                    let (staged, more) = (staged.seal().unwrap(), more.seal().unwrap());
                    for sealed in [&staged, &more] {
                        assert!(sealed.temp_path().exists(), "removed while its owner lives");
                    }
                    if round % 3 == 0 {
                        // A kill: nothing is removed, and the lock is released.
                        let (first, owner) = staged.take_temp();
                        let (second, _) = more.take_temp();
                        [first, second].into_iter().flatten().for_each(|temp| drop(temp.keep().unwrap()));
                        drop(owner);
                    }
                }
            });
            scope.spawn(|| (0..60).for_each(|_| drop(remove(of(dir.path(), &targets), &any).unwrap())));
        }
    });
    remove(of(dir.path(), &targets), &any).unwrap();
    assert!(names(dir.path()).is_empty());
}
