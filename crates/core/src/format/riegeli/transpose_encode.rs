//! Encodes transposed chunks: records are split into one buffer per field.

use super::message::{Value, is_message, next_field};
use super::simple::{byte_of, pack};
use super::state_machine::{Plan, plan};
use crate::bytes::put_varint;
use crate::codec::{Codec, Compression};
use crate::error::Result;
use crate::format::encode::GroupSlice;
use std::collections::HashMap;

/// Parents that are not nodes. Nodes are numbered from `FIRST_NODE`.
const NON_MESSAGE: u32 = 1;
const MESSAGE_START: u32 = 3;
const ROOT: u32 = 4;
const FIRST_NODE: u32 = 5;

/// Subtypes of a field that is a submessage.
const SUBMESSAGE_START: u8 = 1;
const SUBMESSAGE_END: u8 = 2;
/// A varint up to 3 is part of the tag: the subtype is its value plus this number.
const INLINE: u8 = 10;
const MAX_INLINE: u8 = 3;

/// Submessages that are nested deeper than this are stored as strings.
const MAX_DEPTH: usize = 100;

/// Values of one field, in the order of the input. They are stored in reverse order.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Buffer {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    fn reverse_into(&self, out: &mut Vec<u8>) {
        for (i, &end) in self.ends.iter().enumerate().rev() {
            let begin = if i == 0 { 0 } else { self.ends[i - 1] };
            out.extend_from_slice(&self.bytes[begin..end]);
        }
    }
}

/// A field at one position in the tree of messages.
struct Node {
    parent: u32,
    tag: u32,
    /// Its tags by subtype.
    tags: Vec<(u8, u32)>,
    buffer: Option<Buffer>,
}

#[derive(Default)]
struct Splitter {
    nodes: Vec<Node>,
    by_place: HashMap<(u32, u32), u32>,
    /// Node and subtype of each tag.
    tags: Vec<(u32, u8)>,
    sequence: Vec<u32>,
    lengths: Buffer,
}

impl Splitter {
    /// The index of a node. The number of the node is its index plus `FIRST_NODE`.
    fn node(&mut self, parent: u32, tag: u32) -> u32 {
        let nodes = &mut self.nodes;
        *self.by_place.entry((parent, tag)).or_insert_with(|| {
            nodes.push(Node { parent, tag, tags: Vec::new(), buffer: None });
            nodes.len() as u32 - 1
        })
    }

    fn tag(&mut self, node: u32, subtype: u8) -> u32 {
        let known = &mut self.nodes[node as usize].tags;
        if let Some(&(_, tag)) = known.iter().find(|(known, _)| *known == subtype) {
            return tag;
        }
        let tag = self.tags.len() as u32;
        known.push((subtype, tag));
        self.tags.push((node, subtype));
        tag
    }

    fn put(&mut self, node: u32, subtype: u8) {
        let tag = self.tag(node, subtype);
        self.sequence.push(tag);
    }

    fn put_value(&mut self, node: u32, subtype: u8, value: &[u8]) {
        self.put(node, subtype);
        self.nodes[node as usize].buffer.get_or_insert_default().push(value);
    }

    fn record(&mut self, record: &[u8]) {
        if is_message(record) {
            let node = self.node(MESSAGE_START, 0);
            self.put(node, 0);
            self.message(record, ROOT, 0);
        } else {
            let node = self.node(NON_MESSAGE, 0);
            self.put_value(node, 0, record);
            let mut length = Vec::new();
            put_varint(&mut length, record.len() as u64);
            self.lengths.push(&length);
        }
    }

    /// Splits a canonical message that is nested in `depth` others.
    fn message(&mut self, mut rest: &[u8], mut parent: u32, depth: usize) {
        let mut groups = Vec::new();
        while let Some((tag, value)) = next_field(&mut rest) {
            let node = self.node(parent, tag);
            match value {
                Value::Varint(&[byte @ 0..=MAX_INLINE]) => self.put(node, INLINE + byte),
                Value::Varint(bytes) => {
                    let mut low_bits = [0; 10];
                    let low_bits = &mut low_bits[..bytes.len()];
                    low_bits.iter_mut().zip(bytes).for_each(|(low, byte)| *low = byte & 0x7f);
                    self.put_value(node, bytes.len() as u8 - 1, low_bits);
                }
                Value::Fixed(bytes) => self.put_value(node, 0, bytes),
                Value::String { stored, contents } => {
                    let depth = depth + groups.len();
                    if contents.is_empty() || depth >= MAX_DEPTH || !is_message(contents) {
                        self.put_value(node, 0, stored);
                        continue;
                    }
                    self.put(node, SUBMESSAGE_START);
                    // The number of the end tag directly follows the number of the start tag, whatever lies in between.
                    let end = self.tag(node, SUBMESSAGE_END);
                    self.message(contents, node + FIRST_NODE, depth + 1);
                    self.sequence.push(end);
                }
                Value::GroupStart => {
                    groups.push(parent);
                    parent = node + FIRST_NODE;
                    self.put(node, 0);
                }
                Value::GroupEnd => {
                    parent = groups.pop().unwrap_or(ROOT);
                    self.put(node, 0);
                }
            }
        }
    }
}

/// The type of a buffer. A bucket holds buffers of one type only.
fn buffer_type(node: &Node) -> usize {
    match (node.parent, node.tag & 7) {
        (NON_MESSAGE, _) => 4,
        (_, 0) => 0,
        (_, 5) => 1,
        (_, 1) => 2,
        _ => 3,
    }
}

/// Appends the data of a chunk of records: its header to `head`, everything else to `body`. `bucket_bytes` is about
/// how much is compressed together.
pub fn encode_run(
    run: GroupSlice<'_>,
    compression: &Compression,
    bucket_bytes: u64,
    head: &mut Vec<u8>,
    body: &mut Vec<u8>,
) -> Result<()> {
    let mut split = Splitter::default();
    run.iter().for_each(|record| split.record(record));
    let plan = plan(&split.sequence, split.tags.len());
    split.sequence = Vec::new();

    let bucket_bytes = if compression.codec == Codec::None { u64::MAX } else { bucket_bytes };
    let mut stored = Stored { compression, lengths: Vec::new(), blobs: body };
    let mut buffer_lengths = Vec::new();
    let mut indices = vec![0u32; split.nodes.len()];
    for wanted in 0..5 {
        let of_type = (0..split.nodes.len()).filter(|&i| buffer_type(&split.nodes[i]) == wanted);
        let mut buffers: Vec<(usize, &Node, &Buffer)> =
            of_type.filter_map(|i| Some((i, &split.nodes[i], split.nodes[i].buffer.as_ref()?))).collect();
        buffers.sort_by_key(|(_, node, buffer)| (buffer.bytes.len(), node.parent, node.tag));
        let sizes: Vec<u64> = buffers.iter().map(|(_, _, buffer)| buffer.bytes.len() as u64).collect();
        let mut buffers = buffers.into_iter();
        for bucket_size in buckets(&sizes, bucket_bytes) {
            let mut bucket = Vec::with_capacity(bucket_size as usize);
            while (bucket.len() as u64) < bucket_size {
                let Some((node, _, buffer)) = buffers.next() else { break };
                indices[node] = buffer_lengths.len() as u32;
                buffer_lengths.push(buffer.bytes.len() as u64);
                buffer.reverse_into(&mut bucket);
            }
            stored.bucket(&bucket)?;
        }
    }
    if !split.lengths.bytes.is_empty() {
        buffer_lengths.push(split.lengths.bytes.len() as u64);
        let mut bucket = Vec::with_capacity(split.lengths.bytes.len());
        split.lengths.reverse_into(&mut bucket);
        stored.bucket(&bucket)?;
    }

    let header = header(&split, &plan, &stored.lengths, &buffer_lengths, &indices);
    let mut packed_header = Vec::new();
    pack(compression, &header, &mut packed_header)?;
    head.push(byte_of(compression.codec));
    put_varint(head, packed_header.len() as u64);
    head.append(&mut packed_header);
    pack(compression, &plan.transitions, stored.blobs)
}

struct Stored<'a> {
    compression: &'a Compression,
    lengths: Vec<u64>,
    blobs: &'a mut Vec<u8>,
}

impl Stored<'_> {
    fn bucket(&mut self, bucket: &[u8]) -> Result<()> {
        let begin = self.blobs.len();
        pack(self.compression, bucket, self.blobs)?;
        self.lengths.push((self.blobs.len() - begin) as u64);
        Ok(())
    }
}

/// Sizes of the buckets for buffers of the given sizes, which must ascend.
fn buckets(sizes: &[u64], bucket_bytes: u64) -> Vec<u64> {
    let mut left: u64 = sizes.iter().sum();
    let (mut buckets, mut bucket) = (Vec::new(), 0u64);
    for &size in sizes.iter().rev() {
        if bucket > 0 && bucket.saturating_add(size / 2) >= bucket_bytes {
            buckets.push(std::mem::take(&mut bucket));
        }
        bucket += size;
        left -= size;
        if left <= bucket_bytes / 2 {
            bucket += left;
            break;
        }
    }
    if bucket > 0 {
        buckets.push(bucket);
    }
    buckets.reverse();
    buckets
}

fn header(split: &Splitter, plan: &Plan, buckets: &[u64], buffers: &[u64], indices: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, buckets.len() as u64);
    put_varint(&mut out, buffers.len() as u64);
    buckets.iter().chain(buffers).for_each(|&length| put_varint(&mut out, length));
    put_varint(&mut out, plan.states.len() as u64);
    let mut subtypes = Vec::new();
    let mut owned = Vec::new();
    for state in &plan.states {
        let Some(tag) = state.tag else {
            out.push(0);
            continue;
        };
        let (index, subtype) = split.tags[tag as usize];
        let node = &split.nodes[index as usize];
        let (stored, has_data) = match (node.parent, node.tag & 7, subtype) {
            (NON_MESSAGE, ..) => (1, true),
            (MESSAGE_START, ..) => (3, false),
            (_, 0, _) => (node.tag, subtype < INLINE),
            (_, 2, SUBMESSAGE_START) => (2, false),
            (_, 2, SUBMESSAGE_END) => (node.tag + 4, false),
            (_, 3 | 4, _) => (node.tag, false),
            _ => (node.tag, true),
        };
        put_varint(&mut out, u64::from(stored));
        if stored >= 8 && stored & 7 == 0 {
            subtypes.push(subtype);
        }
        if has_data {
            put_varint(&mut owned, u64::from(indices[index as usize]));
        }
    }
    plan.states.iter().for_each(|state| put_varint(&mut out, u64::from(state.next)));
    out.append(&mut subtypes);
    out.append(&mut owned);
    put_varint(&mut out, u64::from(plan.first));
    out
}
