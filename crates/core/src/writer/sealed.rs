//! Complete files that are not visible yet: what can be done with them.

use super::ObjectTarget;
use super::file::{Complete, Finished};
use super::tally::{self, Sum};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions};
use crate::parallel;
use crate::storage::location::Location;
use crate::storage::publish::Sealed;
use crate::storage::remote::upload::Comparison;
use crate::storage::remote::upload::set::Member;
use crate::storage::remote::url::RemoteUrl;

/// Complete files that are not visible yet.
pub struct SealedSet {
    pub(super) files: Vec<(Complete, Option<Sum>)>,
    /// Where objects go that are not in their store yet.
    pub(super) objects: Option<ObjectTarget>,
    pub(super) overwrite: bool,
}

impl SealedSet {
    /// For a set of one file: where its bytes are. None if no other process can take them over.
    pub fn finished(&self) -> Result<Option<(Finished, Option<Sum>)>> {
        let Some((complete, sum)) = self.files.first() else { return Ok(None) };
        let finished = match complete {
            Complete::File(sealed) => Some(Finished::File(sealed.temp_path().to_owned())),
            Complete::Object(upload) => upload.pieces()?.map(Finished::Pieces),
            Complete::Spooled(_) => None,
        };
        Ok(finished.map(|finished| (finished, *sum)))
    }

    /// Discards the files, but leaves objects that were sent in parts in their store. See [`Writer::adopt`](super::Writer::adopt).
    pub fn leave(self) {
        for (complete, _) in self.files {
            if let Complete::Object(upload) = complete {
                upload.leave();
            }
        }
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The counts and hashes of the files, if the records were counted. See [`CreateOptions::tally`].
    pub fn sums(&self) -> Vec<Option<Sum>> {
        self.files.iter().map(|(_, sum)| *sum).collect()
    }

    /// For each object that is sent while it is written: whether its store tells the right checksums. None for other files.
    pub fn comparisons(&self) -> Vec<Option<Comparison>> {
        let of = |complete: &Complete| match complete {
            Complete::Object(upload) => Some(upload.comparison()),
            Complete::File(_) | Complete::Spooled(_) => None,
        };
        self.files.iter().map(|(complete, _)| of(complete)).collect()
    }

    /// Reads the files and compares their records with those that were written. Files written without
    /// [`CreateOptions::tally`] are not compared. Objects cannot be read before they are published.
    pub fn check(&self, format: &Format, options: &ReadOptions, threads: usize, cx: &Cx<'_>) -> Result<()> {
        let check = |(complete, sum): &(Complete, Option<Sum>), cx: &Cx<'_>| match (complete, sum) {
            (Complete::File(sealed), Some(sum)) => {
                let location = Location::path(sealed.temp_path().to_owned());
                tally::check(&location, format, options, *sum, cx)
                    .map_err(|e| e.in_file(&sealed.path().to_string_lossy()))
            }
            _ => Ok(()),
        };
        parallel::for_each(&self.files, threads, cx, check).map(drop)
    }

    /// Reads objects that are published and compares their records with those that were written, as [`check`](Self::check)
    /// does for files.
    pub fn check_published(
        objects: &[(Location, Option<Sum>)],
        format: &Format,
        options: &ReadOptions,
        threads: usize,
        cx: &Cx<'_>,
    ) -> Result<()> {
        let check = |(location, sum): &(Location, Option<Sum>), cx: &Cx<'_>| match sum {
            Some(sum) => {
                tally::check(location, format, options, *sum, cx).map_err(|e| e.in_file(&location.name()))
            }
            None => Ok(()),
        };
        parallel::for_each(objects, threads, cx, check).map(drop)
    }

    /// For a set of one file: makes it appear under the name that it was created with.
    pub fn publish(self, cx: &Cx<'_>) -> Result<()> {
        for (complete, _) in self.files {
            match (complete, &self.objects) {
                (Complete::File(sealed), _) => sealed.publish()?,
                (Complete::Object(upload), _) => upload.publish(cx)?,
                (Complete::Spooled(spool), Some(target)) => {
                    spool.publish(&target.url, &target.uploading, self.overwrite, cx)?;
                }
                (Complete::Spooled(_), None) => return Err(Error::closed("there is no store for the file")),
            }
        }
        Ok(())
    }

    /// The local files, for publishing them together with others: see [`transaction`](crate::storage::transaction).
    pub fn into_files(self) -> impl Iterator<Item = Sealed> {
        self.files.into_iter().filter_map(|(complete, _)| match complete {
            Complete::File(sealed) => Some(sealed),
            Complete::Object(_) | Complete::Spooled(_) => None,
        })
    }

    /// The objects, each with the name that it was created with if it has one, for publishing them together with others:
    /// see [`set`](crate::storage::remote::upload::set).
    pub fn into_objects(self) -> impl Iterator<Item = (Member, Option<RemoteUrl>)> {
        self.files.into_iter().filter_map(|(complete, _)| match complete {
            Complete::Object(upload) => {
                let url = upload.url().clone();
                Some((Member::Upload(upload), Some(url)))
            }
            Complete::Spooled(spool) => Some((Member::Spooled(spool), None)),
            Complete::File(_) => None,
        })
    }
}
