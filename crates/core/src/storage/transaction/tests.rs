//! The process is killed at every step of a transaction, and every step is made to fail.

use super::*;
use crate::Kind;
use crate::storage::output::Output;
use crate::storage::publish::Staged;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use tempfile::TempDir;

/// Names and contents.
type Files = BTreeMap<String, Vec<u8>>;

/// How many shards are replaced by how many.
const SCENES: [(usize, usize); 6] = [(0, 1), (0, 3), (1, 1), (3, 3), (5, 2), (2, 4)];

/// The steps before the first rename of a file: the journal and the folder are synced, the journal takes its name, and
/// the folder is synced again.
const BEFORE_RENAMES: usize = 4;

/// Without syncs, which are slow.
const QUICK: LocalDisk = LocalDisk { durable: false };

/// A disk on which one step fails, or every step from one on.
struct Faulty {
    steps: Cell<usize>,
    fails: fn(usize, usize) -> bool,
    at: usize,
    disk: LocalDisk,
}

fn once(step: usize, at: usize) -> bool {
    step == at
}

/// As after a kill: no further step is made, not even to undo others.
fn from_then_on(step: usize, at: usize) -> bool {
    step >= at
}

impl Faulty {
    fn new(fails: fn(usize, usize) -> bool, at: usize) -> Self {
        Faulty { steps: Cell::new(0), fails, at, disk: QUICK }
    }

    fn step(&self, act: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        let step = self.steps.replace(self.steps.get() + 1);
        if (self.fails)(step, self.at) { Err(std::io::Error::other("injected")) } else { act() }
    }
}

impl Disk for Faulty {
    fn publish(&self, temp: tempfile::TempPath, to: &Path, overwrite: bool) -> std::io::Result<()> {
        self.step(|| self.disk.publish(temp, to, overwrite))
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.step(|| self.disk.rename(from, to))
    }
    fn rename_new(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.step(|| self.disk.rename_new(from, to))
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.step(|| self.disk.remove(path))
    }
    fn sync(&self, folder: &Path) -> std::io::Result<()> {
        self.step(|| self.disk.sync(folder))
    }
    fn sync_file(&self, file: &File) -> std::io::Result<()> {
        self.step(|| self.disk.sync_file(file))
    }
}

/// A folder with an old set, and the set that replaces it.
struct Scene {
    dir: TempDir,
    old: Files,
    new: Files,
}

fn shards(count: usize, what: &str) -> Files {
    let name = |i| format!("train-{i:05}-of-{count:05}.ffr");
    (0..count).map(|i| (name(i), format!("{what} shard {i}").into_bytes())).collect()
}

impl Scene {
    fn new((old, new): (usize, usize)) -> Self {
        // In memory, if there is such a folder: a disk is slow with thousands of folders.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let scene = Scene { dir, old: shards(old, "old"), new: shards(new, "new") };
        for (name, bytes) in &scene.old {
            std::fs::write(scene.dir.path().join(name), bytes).unwrap();
        }
        scene
    }

    fn journal(&self) -> PathBuf {
        journal::path_for_set(&self.dir.path().join("train.ffr"))
    }

    fn publish(&self, disk: &dyn Disk) -> Result<Option<Error>> {
        self.publish_with(disk, true, &mut || Ok(self.visible_paths()), &mut || Ok(()))
    }

    fn publish_with(
        &self,
        disk: &dyn Disk,
        overwrite: bool,
        find_old: &mut dyn FnMut() -> Result<Vec<PathBuf>>,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Error>> {
        let owner = Arc::default();
        let stage = |(name, bytes): (&String, &Vec<u8>)| {
            let mut staged = Staged::create_shard(&self.dir.path().join("train.ffr"), false, &owner).unwrap();
            staged.write_all(bytes).unwrap();
            (staged.seal().unwrap(), self.dir.path().join(name))
        };
        let files = self.new.iter().map(stage).collect();
        publish_on(disk, NewSet { files, journal: &self.journal(), overwrite, find_old, step })
    }

    fn all(&self) -> Files {
        let entries = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap());
        entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
    }

    fn visible(&self) -> Files {
        self.all().into_iter().filter(|(name, _)| !name.starts_with('.')).collect()
    }

    fn visible_paths(&self) -> Vec<PathBuf> {
        self.visible().keys().map(|name| self.dir.path().join(name)).collect()
    }

    /// Checks what a reader may find: never files of both sets, and a complete set unless there is a journal.
    fn check(&self, when: &str) {
        let visible = self.visible();
        let only = |set: &Files| visible.iter().all(|(name, bytes)| set.get(name) == Some(bytes));
        assert!(only(&self.old) || only(&self.new), "{when}: a mixture, {visible:?}");
        if !self.journal().exists() {
            assert!(visible == self.old || visible == self.new, "{when}: incomplete, {visible:?}");
        }
    }

    /// Recovers, and checks that the folder has that set and nothing else.
    fn recover(&self, keep: Keep, when: &str) {
        let names = recover_on(&QUICK, &self.journal(), Some(keep)).unwrap();
        let names = names.unwrap_or_else(|| panic!("{when}: no journal"));
        let set = if keep == Keep::New { &self.new } else { &self.old };
        assert_eq!(names, set.keys().map(|name| self.dir.path().join(name)).collect::<Vec<_>>(), "{when}");
        assert_eq!(&self.all(), set, "{when}");
        assert!(recover_on(&QUICK, &self.journal(), Some(keep)).unwrap().is_none(), "{when}: a second time");
    }
}

/// How many steps it takes to publish.
fn steps(scene: (usize, usize)) -> usize {
    let disk = Faulty::new(once, usize::MAX);
    let scene = Scene::new(scene);
    assert!(scene.publish(&disk).unwrap().is_none());
    assert_eq!(scene.all(), scene.new);
    disk.steps.get()
}

#[test]
fn a_kill_at_any_step_leaves_one_whole_set_or_a_journal_that_leads_to_either() {
    for counts in SCENES {
        for at in 0..steps(counts) {
            for keep in [Keep::Old, Keep::New] {
                let when = format!("{counts:?} killed at step {at}, {keep:?}");
                let scene = Scene::new(counts);
                let _ = scene.publish(&Faulty::new(from_then_on, at));
                scene.check(&when);
                if scene.journal().exists() {
                    scene.recover(keep, &when);
                }
            }
        }
    }
}

#[test]
fn a_kill_after_the_commit_leaves_hidden_files_that_the_next_publish_or_recover_deletes() {
    let mut seen = 0;
    for at in 0..steps((3, 3)) {
        for clean in [false, true] {
            let scene = Scene::new((3, 3));
            let _ = scene.publish(&Faulty::new(from_then_on, at));
            if scene.journal().exists() || scene.visible() != scene.new {
                continue;
            }
            seen += 1;
            assert!(journal::path_of_leftovers(&scene.journal()).exists());
            if clean {
                assert!(
                    recover(&scene.journal(), Some(Keep::Old)).unwrap().is_none(),
                    "nothing was interrupted"
                );
            } else {
                assert!(scene.publish(&LocalDisk { durable: true }).unwrap().is_none());
            }
            assert_eq!(scene.all(), scene.new);
        }
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn an_error_at_any_step_leaves_the_old_set_or_the_new_one_and_nothing_hidden() {
    for counts in SCENES {
        let mut outcomes = [0, 0];
        for at in 0..steps(counts) {
            let when = format!("{counts:?} failed at step {at}");
            let scene = Scene::new(counts);
            match scene.publish(&Faulty::new(once, at)) {
                Err(error) if error.to_string().contains("published, but cannot sync") => {
                    assert_eq!(scene.visible(), scene.new, "{when}");
                    assert!(!scene.journal().exists(), "{when}");
                }
                Err(error) => {
                    assert!(error.to_string().contains("injected"), "{when}: {error}");
                    assert_eq!(scene.all(), scene.old, "{when}");
                    outcomes[0] += 1;
                }
                Ok(left) => {
                    assert!(left.is_some(), "{when}: not reported");
                    assert_eq!(scene.visible(), scene.new, "{when}");
                    assert!(!scene.journal().exists(), "{when}");
                    outcomes[1] += 1;
                }
            }
        }
        assert!(outcomes[0] >= 3 + counts.0 + counts.1, "{counts:?}: {outcomes:?}");
    }
}

#[test]
fn an_error_that_cannot_be_undone_keeps_everything_for_recover() {
    fn twice(step: usize, at: usize) -> bool {
        step == at % 100 || step >= at / 100
    }
    for counts in [(3, 3), (5, 2), (0, 3)] {
        let mut seen = 0;
        for first in 0..steps(counts) {
            for second in first + 1..2 * steps(counts) {
                for keep in [Keep::Old, Keep::New] {
                    let when = format!("{counts:?} failed at {first}, going back at {second}, {keep:?}");
                    let scene = Scene::new(counts);
                    let published = scene.publish(&Faulty::new(twice, first + 100 * second));
                    scene.check(&when);
                    if !scene.journal().exists() {
                        continue;
                    }
                    seen += 1;
                    let error = published.unwrap_err();
                    assert!(matches!(error.kind(), Kind::Publish), "{when}: {error}");
                    assert!(error.to_string().contains("anyrecord.recover("), "{when}: {error}");
                    scene.recover(keep, &when);
                }
            }
        }
        assert!(seen > 20, "{seen}");
    }
}

#[test]
fn a_kill_while_recovering_can_be_recovered_from_either_way() {
    for counts in [(2, 2), (3, 1), (0, 2)] {
        for at in 0..steps(counts) {
            for first in [Keep::Old, Keep::New] {
                for stop in 0..20 {
                    for second in [Keep::Old, Keep::New] {
                        let when =
                            format!("{counts:?} killed at {at}, {first:?} killed at {stop}, {second:?}");
                        let scene = Scene::new(counts);
                        let _ = scene.publish(&Faulty::new(from_then_on, at));
                        if !scene.journal().exists() {
                            continue;
                        }
                        let _ = recover_on(&Faulty::new(from_then_on, stop), &scene.journal(), Some(first));
                        scene.check(&when);
                        if scene.journal().exists() {
                            scene.recover(second, &when);
                        } else {
                            // The set is complete. The other files are hidden, and can be deleted at any time.
                            recover_on(&QUICK, &scene.journal(), Some(first)).unwrap();
                            let kept = if first == Keep::New { &scene.new } else { &scene.old };
                            assert_eq!(&scene.all(), kept, "{when}");
                        }
                    }
                }
            }
        }
    }
}

/// A scene that was killed after `renames` renames of old and new files.
fn interrupted(counts: (usize, usize), renames: usize) -> Scene {
    let scene = Scene::new(counts);
    let _ = scene.publish(&Faulty::new(from_then_on, BEFORE_RENAMES + renames));
    assert!(scene.journal().exists());
    scene
}

#[test]
fn a_set_that_is_gone_cannot_be_kept_and_the_other_can() {
    let deleted = |scene: &Scene, suffix: &str| {
        let names = scene.all().into_keys().filter(|name| name.ends_with(suffix)).collect::<Vec<_>>();
        names.iter().for_each(|name| std::fs::remove_file(scene.dir.path().join(name)).unwrap());
        names.len()
    };
    for (suffix, renames, lost, left) in
        [(".old", 2, Keep::Old, Keep::New), (".tmp", 0, Keep::New, Keep::Old)]
    {
        let scene = interrupted((3, 3), renames);
        assert!(deleted(&scene, suffix) > 0);
        let before = scene.all();
        let error = recover(&scene.journal(), Some(lost)).unwrap_err().to_string();
        assert!(error.contains("set is missing") && error.contains("call recover with keep="), "{error}");
        assert_eq!(scene.all(), before, "nothing was touched");
        scene.recover(left, suffix);
    }
}

#[test]
fn a_file_that_took_a_name_meanwhile_is_not_touched() {
    for (renames, keep) in [(2, Keep::Old), (3, Keep::New)] {
        let scene = interrupted((3, 3), renames);
        let name = scene.dir.path().join(scene.old.keys().next().unwrap());
        std::fs::write(&name, b"somebody else's").unwrap();
        let before = scene.all();
        let error = recover(&scene.journal(), Some(keep)).unwrap_err().to_string();
        assert!(error.contains("another file has taken the name"), "{error}");
        assert_eq!(scene.all(), before);
        std::fs::remove_file(&name).unwrap();
        scene.recover(keep, "after it was moved away");
    }
}

#[test]
fn a_journal_in_the_way_is_an_error_and_one_that_is_locked_is_waited_for() {
    let scene = interrupted((3, 3), 4);
    let before = scene.all();
    let error = scene.publish(&QUICK).unwrap_err();
    assert!(matches!(error.kind(), Kind::Publish), "{error}");
    assert_eq!(scene.all(), before);

    let held = File::open(scene.journal()).unwrap();
    held.lock().unwrap();
    let error = recover(&scene.journal(), Some(Keep::New)).unwrap_err();
    assert!(error.to_string().contains("by a running process"), "{error}");
    assert_eq!(scene.all(), before);

    // `step` is called again and again, until the other process is done or the caller wants to stop.
    let error = scene
        .publish_with(&QUICK, true, &mut || Ok(scene.visible_paths()), &mut || Err(Error::closed("stopped")))
        .unwrap_err();
    assert_eq!(error.to_string(), "stopped");
    let mut looks = 0;
    let mut step = || {
        looks += 1;
        if looks == 3 {
            held.unlock().unwrap();
            recover(&scene.journal(), Some(Keep::Old)).unwrap();
        }
        Ok(())
    };
    let find = &mut || Ok(scene.visible_paths());
    assert!(scene.publish_with(&QUICK, true, find, &mut step).unwrap().is_none());
    assert_eq!(scene.all(), scene.new);
    assert_eq!(looks, 3);
}

#[test]
fn a_set_that_appears_before_the_journal_is_seen() {
    for overwrite in [false, true] {
        let scene = Scene::new((0, 2));
        let other = scene.dir.path().join("train-00000-of-00001.ffr");
        let mut looks = 0;
        let mut find = || {
            looks += 1;
            if looks == 2 {
                std::fs::write(&other, b"published by another process").unwrap();
            }
            Ok(scene.visible_paths())
        };
        let published = scene.publish_with(&QUICK, overwrite, &mut find, &mut || Ok(()));
        if overwrite {
            assert!(published.unwrap().is_none());
            assert_eq!(scene.all(), scene.new);
        } else {
            assert!(published.unwrap_err().to_string().contains("overwrite=True"));
            assert_eq!(scene.visible_paths(), [other]);
            assert_eq!(scene.all().len(), 1);
        }
    }
}

#[test]
fn a_damaged_journal_is_an_error_that_changes_nothing() {
    let scene = interrupted((3, 3), 4);
    let whole = std::fs::read(scene.journal()).unwrap();
    std::fs::write(scene.journal(), &whole[..whole.len() / 2]).unwrap();
    let before = scene.all();
    for keep in [Keep::Old, Keep::New] {
        let error = recover(&scene.journal(), Some(keep)).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert_eq!(scene.all(), before);
    }
}

#[test]
fn a_copy_of_the_folder_that_kept_the_times_can_be_recovered_too() {
    let set_time =
        |path: &Path, time| File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    for renames in [0, 2, 3, 5] {
        for keep in [Keep::Old, Keep::New] {
            let (scene, copy) = (Scene::new((3, 3)), Scene::new((0, 0)));
            for path in scene.visible_paths() {
                set_time(&path, std::time::UNIX_EPOCH);
            }
            let _ = scene.publish(&Faulty::new(from_then_on, BEFORE_RENAMES + renames));
            for name in scene.all().keys() {
                let (from, to) = (scene.dir.path().join(name), copy.dir.path().join(name));
                std::fs::copy(&from, &to).unwrap();
                set_time(&to, std::fs::metadata(&from).unwrap().modified().unwrap());
            }
            let copy = Scene { dir: copy.dir, ..scene };
            copy.recover(keep, &format!("{renames} renames, {keep:?}"));
        }
    }
}

#[cfg(unix)]
#[test]
fn new_shards_are_as_private_as_the_old_ones() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new((2, 3));
    for path in scene.visible_paths() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
    }
    scene.publish(&LocalDisk { durable: true }).unwrap();
    for path in scene.visible_paths() {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
    assert_eq!(scene.visible(), scene.new);
}
