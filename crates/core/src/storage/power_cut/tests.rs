//! The power is cut at every step of publishing a file and a set. Everything that can be left then is tried.

use super::*;
use crate::storage::journal;
use crate::storage::output::Output;
use crate::storage::publish::{Sealed, Staged};
use crate::storage::temporary::Owner;
use crate::storage::transaction::{Keep, NewSet, publish_on, recover_on};
use std::sync::Arc;

const NEVER: usize = usize::MAX;

/// A way to publish, and what was there before and after.
struct Scene {
    old: Files,
    new: Files,
    is_set: bool,
}

fn files(names: &[&str], what: &str) -> Files {
    names.iter().map(|name| ((*name).to_owned(), format!("{what} {name}").into_bytes())).collect()
}

fn shards(count: usize, what: &str) -> Files {
    let names: Vec<String> = (0..count).map(|i| format!("train-{i:05}-of-{count:05}.ffr")).collect();
    files(&names.iter().map(String::as_str).collect::<Vec<_>>(), what)
}

fn scenes() -> Vec<Scene> {
    let one = |old| Scene { old, new: files(&["a.ffr"], "new"), is_set: false };
    let set = |old, new| Scene { old: shards(old, "old"), new: shards(new, "new"), is_set: true };
    vec![
        one(files(&["a.ffr"], "old")),
        one(Files::new()),
        set(0, 2),
        set(2, 2),
        set(3, 1),
        set(1, 3),
        set(3, 3),
    ]
}

impl Scene {
    fn stage(&self, disk: &PowerCut, name: &str, bytes: &[u8], owner: &Arc<Owner>) -> crate::Result<Sealed> {
        let staged = if self.is_set {
            Staged::create_shard(&disk.path("train.ffr"), true, owner)
        } else {
            Staged::create(&disk.path(name), !self.old.is_empty(), true, owner)
        };
        let mut staged = staged.unwrap();
        staged.write_all(bytes)?;
        staged.seal_on(disk)
    }

    fn journal(disk: &PowerCut) -> PathBuf {
        journal::path_for_set(&disk.path("train.ffr"))
    }

    /// Publishes with the code that every writer uses.
    fn publish(&self, disk: &PowerCut) -> crate::Result<()> {
        let (mut files, owner) = (Vec::new(), Arc::default());
        for (name, bytes) in &self.new {
            files.push((self.stage(disk, name, bytes, &owner)?, disk.path(name)));
        }
        if !self.is_set {
            return files.into_iter().try_for_each(|(sealed, _)| sealed.publish_on(disk));
        }
        let find_old = &mut || Ok(self.old.keys().map(|name| disk.path(name)).collect());
        let (journal, step) = (&Self::journal(disk), &mut || Ok(()));
        publish_on(disk, NewSet { files, journal, overwrite: true, find_old, step }).map(drop)
    }

    /// What is wrong with what a cut left. `done`: publishing had returned, so the new files must be there.
    fn wrong(&self, disk: &PowerCut, remains: &Remains, done: bool) -> Option<String> {
        disk.restart(remains);
        let visible = disk.visible();
        if !Self::journal(disk).exists() {
            let is_right = visible == self.new || (visible == self.old && !done);
            return (!is_right).then(|| format!("neither the old files nor the new ones: {visible:?}"));
        }
        if done {
            return Some("the journal is back after everything was done".to_owned());
        }
        let only = |set: &Files| visible.iter().all(|(name, bytes)| set.get(name) == Some(bytes));
        if !only(&self.old) && !only(&self.new) {
            return Some(format!("a mixture: {visible:?}"));
        }
        for (keep, kept) in [(Keep::Old, &self.old), (Keep::New, &self.new)] {
            disk.restart(remains);
            if let Err(error) = recover_on(&QUICK, &Self::journal(disk), Some(keep)) {
                return Some(format!("{keep:?} cannot be recovered: {error}"));
            }
            if disk.visible() != *kept {
                return Some(format!("{keep:?} was recovered as {:?}", disk.visible()));
            }
        }
        None
    }

    /// Cuts at each step and after the last one. Returns how many states were tried, and what was wrong.
    fn try_all(&self, mistake: Mistake) -> (usize, Vec<String>) {
        let disk = PowerCut::new(&self.old, NEVER, mistake);
        self.publish(&disk).unwrap();
        assert_eq!(disk.visible(), self.new);
        let steps = disk.steps();
        let (mut tried, mut wrong) = (0, Vec::new());
        for at in (0..steps).chain([NEVER]) {
            let disk = PowerCut::new(&self.old, at, mistake);
            let published = self.publish(&disk);
            // After the last change that matters, a failure is only reported.
            assert!(published.is_err() || at == NEVER || self.is_set, "the power was cut, and no error");
            for remains in disk.remains() {
                tried += 1;
                if let Some(what) = self.wrong(&disk, &remains, published.is_ok()) {
                    wrong.push(format!("{:?} -> {:?}, cut before step {at}: {what}", self.old, self.new));
                }
            }
        }
        (tried, wrong)
    }
}

#[test]
fn a_power_cut_at_any_step_leaves_the_old_files_or_the_new_ones_or_a_journal_that_recovers_either() {
    let mut total = 0;
    for scene in scenes() {
        let (tried, wrong) = scene.try_all(Mistake::None);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        total += tried;
    }
    println!("{total} states after a power cut");
    assert!(total > 300, "{total}");
}

#[test]
fn every_sync_is_needed_and_must_come_before_the_rename() {
    for scene in scenes() {
        let disk = PowerCut::new(&scene.old, NEVER, Mistake::None);
        scene.publish(&disk).unwrap();
        let (files, folders) = disk.syncs();
        let mut mistakes: Vec<_> = (0..files).map(Mistake::NoFileSync).collect();
        mistakes.extend((0..folders).map(Mistake::NoFolderSync));
        mistakes.push(Mistake::LateFileSync);
        for mistake in mistakes {
            let (_, wrong) = scene.try_all(mistake);
            assert!(!wrong.is_empty(), "{:?} -> {:?}: {mistake:?} was not noticed", scene.old, scene.new);
        }
    }
}

#[test]
fn a_power_cut_while_recovering_can_be_recovered_from_either_way() {
    let mut tried = 0;
    for scene in scenes().iter().filter(|scene| scene.is_set) {
        let steps = {
            let disk = PowerCut::new(&scene.old, NEVER, Mistake::None);
            scene.publish(&disk).unwrap();
            disk.steps()
        };
        for at in 0..steps {
            let disk = PowerCut::new(&scene.old, at, Mistake::None);
            let _ = scene.publish(&disk);
            // The last of the states is the one in which everything survived.
            let Some(remains) = disk.remains().pop() else { continue };
            for keep in [Keep::Old, Keep::New] {
                for stop in 0.. {
                    disk.restart(&remains);
                    if !Scene::journal(&disk).exists() {
                        break;
                    }
                    let second = disk.again(stop);
                    let recovered = recover_on(&second, &Scene::journal(&second), Some(keep));
                    for left in second.remains() {
                        tried += 1;
                        let kept = if keep == Keep::New { &scene.new } else { &scene.old };
                        assert_eq!(scene.wrong(&second, &left, false), None, "cut at {at}, then at {stop}");
                        if recovered.is_ok() {
                            second.restart(&left);
                            assert_eq!(&second.visible(), kept);
                        }
                    }
                    if recovered.is_ok() {
                        break;
                    }
                }
            }
        }
    }
    assert!(tried > 300, "{tried}");
}
