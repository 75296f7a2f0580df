//! Files that are read one after the other, from front to back.
//!
//! Objects are opened together, some ahead of the one that is being read, and their beginnings are fetched meanwhile. So
//! many small objects take little more time than their bytes.

use crate::cx::Cx;
use crate::error::Result;
use crate::shard::first_part;
use crate::storage::Storage;
use crate::storage::buffered::Buffered;
use crate::storage::file::Io;
use crate::storage::location::{Location, Opened};
use std::collections::VecDeque;

/// Objects that are opened together.
const TOGETHER: usize = 64;
/// When so few open objects wait to be read, the next ones are opened.
const FEW: usize = 8;
/// Bytes of the waiting objects that are fetched ahead.
const AHEAD: u64 = 32 << 20;

/// Files in order, each opened before it is needed.
pub struct Series<'a> {
    /// The files that are not open yet.
    locations: &'a [&'a Location],
    format: Option<&'a str>,
    /// Whether the files are read as a whole, and not only their tables.
    is_whole: bool,
    opened: VecDeque<Waiting>,
}

struct Waiting {
    opened: Result<Opened>,
    /// Bytes that are being fetched. None if that has not begun.
    ahead: Option<u64>,
}

impl<'a> Series<'a> {
    /// Files whose content is read.
    pub fn whole(locations: &'a [&'a Location], format: Option<&'a str>) -> Self {
        Series { locations, format, is_whole: true, opened: VecDeque::new() }
    }

    /// Files of which only headers and tables are read.
    pub fn headers(locations: &'a [&'a Location], format: Option<&'a str>) -> Self {
        Series { is_whole: false, ..Self::whole(locations, format) }
    }

    /// The next file. None after the last one. It is to be read with a [`Buffered`].
    pub fn next(&mut self, cx: &Cx<'_>) -> Result<Option<Opened>> {
        if self.opened.len() < FEW {
            self.open_objects(cx)?;
        }
        if self.is_whole {
            self.fetch_ahead();
        }
        match self.opened.pop_front() {
            Some(waiting) => waiting.opened.map(Some),
            None => match self.locations.split_first() {
                Some((location, rest)) => {
                    self.locations = rest;
                    location.open(Io::Plain, first_part(location, self.format), cx).map(Some)
                }
                None => Ok(None),
            },
        }
    }

    /// Opens the next files together, as long as they are objects.
    fn open_objects(&mut self, cx: &Cx<'_>) -> Result<()> {
        let is_object = |location: &&&Location| location.as_url().is_some();
        let count = self.locations.iter().take(TOGETHER).take_while(is_object).count();
        let (now, later) = self.locations.split_at(count);
        if count > 0 {
            let parts: Vec<_> =
                now.iter().map(|location| (*location, first_part(location, self.format))).collect();
            let opened = Location::open_objects(&parts, cx)?;
            self.opened.extend(opened.into_iter().map(|opened| Waiting { opened, ahead: None }));
            self.locations = later;
        }
        Ok(())
    }

    /// Lets the next objects begin to fetch what a walk reads first.
    fn fetch_ahead(&mut self) {
        let mut bytes: u64 = self.opened.iter().filter_map(|waiting| waiting.ahead).sum();
        for Waiting { opened, ahead } in self.opened.iter_mut().filter(|waiting| waiting.ahead.is_none()) {
            let Ok(opened) = opened else { continue };
            let length = opened.storage.len().min(opened.storage.distance().first);
            if bytes > 0 && bytes + length > AHEAD {
                break;
            }
            bytes += length;
            *ahead = Some(length);
            Buffered::of(opened).will_need(&mut std::iter::once(0..length));
        }
    }
}
