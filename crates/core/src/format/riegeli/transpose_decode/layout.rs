//! The front of the header: how the bytes after it are divided into buckets, and those into buffers.

use super::super::simple::declared;
use crate::budget::Held;
use crate::bytes::{self, Cursor};
use crate::codec::Codec;
use crate::cx::Cx;
use crate::error::{Error, Result};
use std::borrow::Cow;

/// Where the lengths are in the header. They are read when they are needed. A list of them would be many times larger
/// than their stored form.
pub struct Layout<'a> {
    buckets: u32,
    bucket_lengths: Cursor<'a>,
    buffers: u32,
    buffer_lengths: Cursor<'a>,
}

/// All buckets, unpacked, one after the other.
pub struct Buckets<'a> {
    bytes: Cow<'a, [u8]>,
    /// Where each bucket ends that is not empty.
    ends: Vec<usize>,
}

impl<'a> Layout<'a> {
    /// Reads the counts and skips the lengths.
    pub fn read(header: &mut Cursor<'a>, cx: &Cx<'_>) -> Result<Self> {
        let (buckets, buffers) = (header.varint32()?, header.varint32()?);
        if buckets == 0 && buffers != 0 {
            return Err(header.error("there are buffers but no buckets"));
        }
        let bucket_lengths = skip(header, buckets, cx)?;
        Ok(Layout { buckets, bucket_lengths, buffers, buffer_lengths: skip(header, buffers, cx)? })
    }

    /// Unpacks the buckets. Together they may have at most `most` bytes.
    pub fn unpack<'d>(
        &self,
        codec: Codec,
        data: &mut Cursor<'d>,
        most: u64,
        at: u64,
        held: &mut Held<'_>,
        cx: &Cx<'_>,
    ) -> Result<Buckets<'d>> {
        let (total, stored) = self.sizes(codec, data.clone(), most, at, cx)?;
        if codec == Codec::None {
            let bytes = Cow::Borrowed(data.take(stored)?);
            let mut ends = Vec::new();
            self.each_bucket(cx, |length| push_end(&mut ends, length))?;
            return Ok(Buckets { bytes, ends });
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        // Reserve the likely size at once. Memory for a larger declared size grows with the data that arrives.
        let likely = total.min(stored.saturating_mul(8).max(1 << 20));
        held.grow(likely)?;
        bytes::reserve_bytes("buckets of a chunk", &mut bytes, likely)?;
        self.each_bucket(cx, |length| {
            let (size, payload) = declared(codec, data.take(length)?, at)?;
            codec.append(payload, size, &mut bytes, held, cx)?;
            push_end(&mut ends, size)
        })?;
        Ok(Buckets { bytes: Cow::Owned(bytes), ends })
    }

    /// The declared size and the stored size of all buckets together.
    fn sizes(
        &self,
        codec: Codec,
        mut data: Cursor<'_>,
        most: u64,
        at: u64,
        cx: &Cx<'_>,
    ) -> Result<(u64, u64)> {
        let (mut left, mut stored) = (most, 0);
        self.each_bucket(cx, |length| {
            let (size, _) = declared(codec, data.take(length)?, at)?;
            left = left.checked_sub(size).ok_or_else(|| {
                Error::format("transposed chunk has more bytes in buckets than in records").at(at).found(size)
            })?;
            stored += length;
            Ok(())
        })?;
        Ok((most - left, stored))
    }

    fn each_bucket(&self, cx: &Cx<'_>, each: impl FnMut(u64) -> Result<()>) -> Result<()> {
        each_length(self.bucket_lengths.clone(), self.buckets, cx, each)
    }

    /// Cuts the buckets into buffers.
    pub fn buffers<'b>(
        &self,
        buckets: &'b Buckets<'_>,
        at: u64,
        held: &mut Held<'_>,
        cx: &Cx<'_>,
    ) -> Result<Vec<&'b [u8]>> {
        // There are at most as many buffers as the header has bytes, because `read` has read all their lengths.
        held.grow(u64::from(self.buffers) * size_of::<&[u8]>() as u64)?;
        let mut buffers = bytes::list("buffers of a chunk", self.buffers.into())?;
        let mut rest = buckets.iter();
        let mut bucket: &[u8] = &[];
        each_length(self.buffer_lengths.clone(), self.buffers, cx, |length| {
            if bucket.is_empty() && length > 0 {
                bucket = rest
                    .next()
                    .ok_or_else(|| Error::format("transposed chunk has too few buckets").at(at))?;
            }
            let split = usize::try_from(length).ok().and_then(|n| bucket.split_at_checked(n));
            let (buffer, left) = split.ok_or_else(|| {
                Error::format("transposed buffer reaches past its bucket")
                    .at(at)
                    .expected(bucket.len())
                    .found(length)
            })?;
            bucket = left;
            bytes::push("buffers of a chunk", &mut buffers, buffer)
        })?;
        if !bucket.is_empty() || rest.next().is_some() {
            return Err(Error::format("transposed chunk has bytes that belong to no buffer").at(at));
        }
        Ok(buffers)
    }
}

impl Buckets<'_> {
    /// The buckets that are not empty.
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.bytes[begin..end])
    }
}

/// Adds a bucket to the list, unless it is empty. A few stored bytes can declare many empty buckets.
fn push_end(ends: &mut Vec<usize>, size: u64) -> Result<()> {
    if size == 0 {
        return Ok(());
    }
    let begin = ends.last().copied().unwrap_or(0) as u64;
    bytes::push("buckets of a chunk", ends, bytes::in_memory("buckets of a chunk", begin + size)?)
}

/// Skips `count` lengths. Returns a cursor at the first of them.
fn skip<'a>(header: &mut Cursor<'a>, count: u32, cx: &Cx<'_>) -> Result<Cursor<'a>> {
    let begin = header.clone();
    check_count(header, count.into())?;
    let mut pace = cx.pace();
    for _ in 0..count {
        header.varint64()?;
        pace.step(8)?;
    }
    Ok(begin)
}

fn each_length(
    mut lengths: Cursor<'_>,
    count: u32,
    cx: &Cx<'_>,
    mut each: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut pace = cx.pace();
    for _ in 0..count {
        each(lengths.varint64()?)?;
        pace.step(64)?;
    }
    Ok(())
}

/// Checks a count against the bytes that are left. Every entry takes at least one byte.
pub fn check_count(header: &Cursor<'_>, count: u64) -> Result<()> {
    let left = header.rest().len();
    if count > left as u64 {
        return Err(header.error("declares more entries than it has bytes").expected(left).found(count));
    }
    Ok(())
}
