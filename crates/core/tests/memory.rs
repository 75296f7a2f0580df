//! Memory is allocated for bytes that exist, not for bytes that are only claimed.
//!
//! Every chunk here has a few kilobytes and correct hashes, and claims gigabytes somewhere. The tests count what the
//! decoder allocates.

use anyrecord::budget::Budget;
use anyrecord::bytes::{put_varint, varint_len};
use anyrecord::codec::{Codec, Compression};
use anyrecord::format::riegeli::chunk::{ChunkView, Header, kind};
use anyrecord::format::riegeli::simple::byte_of;
use anyrecord::hash::highway;
use anyrecord::storage::file_set::FileSet;
use anyrecord::{Cx, Error, Kind, Limits};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Counts live bytes. Refuses to go beyond [`REFUSED`], so that a decoder that trusts a claim does no harm.
struct Counting;

const REFUSED: usize = 1 << 30;
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// One measurement at a time.
static MEASURING: Mutex<()> = Mutex::new(());

// SAFETY: the system's allocator does everything. Counting does not change what it does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller keeps the contract.
        let memory = if live > REFUSED { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } };
        if memory.is_null() {
            LIVE.fetch_sub(layout.size(), Relaxed);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CODECS: [Codec; 4] = [Codec::None, Codec::Brotli, Codec::Zstd, Codec::Snappy];
/// The claimed size.
const HUGE: u64 = 4 << 30;
/// The memory that a chunk of a few kilobytes may take. The largest part is the window of brotli.
const MOST: usize = 40 << 20;

/// A chunk at byte 64 of a file, with all hashes right.
fn chunk(kind: u8, data: &[u8], records: u64, decoded: u64) -> Vec<u8> {
    let header =
        Header { data_size: data.len() as u64, data_hash: highway::hash(data), kind, records, decoded };
    let mut chunk = [&header.to_bytes()[..], data].concat();
    chunk.resize(chunk.len().max(records as usize), 0);
    assert!(chunk.len() < 60_000, "it must fit in a block");
    chunk
}

/// `bytes` as a blob that declares `size` bytes.
fn blob(codec: Codec, bytes: &[u8], size: u64) -> Vec<u8> {
    let mut packed = Vec::new();
    let compression = Compression { codec, level: 3, window_log: 20 };
    compression.compress(bytes, &mut packed).unwrap();
    if codec == Codec::None {
        return packed;
    }
    if codec == Codec::Snappy {
        // A snappy block declares its size itself.
        packed.splice(..varint_len(bytes.len() as u64), varint(size.min(u32::MAX.into())));
    }
    [varint(size), packed].concat()
}

/// `bytes` as a blob that declares its true size.
fn true_blob(codec: Codec, bytes: &[u8]) -> Vec<u8> {
    blob(codec, bytes, bytes.len() as u64)
}

/// A zstd frame that claims to have `size` bytes. Its window is claimed to be all of them (single segment), or 2 GiB.
fn zstd_claiming(bytes: &[u8], size: u64, single_segment: bool) -> Vec<u8> {
    let mut out = varint(size);
    out.extend([0x28, 0xb5, 0x2f, 0xfd, if single_segment { 0xe0 } else { 0xc0 }]);
    if !single_segment {
        out.push(21 << 3);
    }
    out.extend(size.to_le_bytes());
    out.extend(&((bytes.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    out.extend(bytes);
    out
}

fn simple(codec: Codec, sizes: &[u8], values: &[u8]) -> Vec<u8> {
    [&[byte_of(codec)], &varint(sizes.len() as u64)[..], sizes, values].concat()
}

fn transposed(codec: Codec, header: &[u8], buckets: &[u8], transitions: &[u8]) -> Vec<u8> {
    [&[byte_of(codec)], &varint(header.len() as u64)[..], header, buckets, transitions].concat()
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

/// Decodes a chunk that must be refused. Returns the error, and the most memory that was in use.
fn refused(name: &str, chunk: &[u8]) -> (Error, usize) {
    let limits = Limits::default();
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let view = ChunkView::read(64, chunk, true).unwrap();
    let decoded = view.decode(&Cx::new(&budget));
    let peak = PEAK.load(Relaxed) - before;
    assert_eq!(budget.held(), 0, "{name}: something is still held");
    (decoded.err().unwrap_or_else(|| panic!("{name}: the claim is trusted")), peak)
}

/// Checks that a chunk is refused as malformed, with little memory. Returns the error message.
fn check(name: &str, chunk: &[u8]) -> String {
    check_within(MOST, name, chunk)
}

fn check_within(most: usize, name: &str, chunk: &[u8]) -> String {
    let (error, peak) = refused(name, chunk);
    assert!(peak < most, "{name}: {peak} bytes for a chunk of {}: {error}", chunk.len());
    assert!(matches!(error.kind(), Kind::Format), "{name}: {error}");
    error.to_string()
}

#[test]
fn a_claimed_size_takes_no_memory() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let few = b"a few bytes that are really there".repeat(100);
    let one_size = varint(HUGE);
    for codec in CODECS {
        let name = |part: &str| format!("{} {part}", codec.name());
        let simple_chunk = |sizes: &[u8], values: &[u8], records| {
            chunk(kind::SIMPLE, &simple(codec, sizes, values), records, HUGE)
        };
        let transposed_chunk = |header: &[u8], buckets: &[u8], transitions: &[u8], records| {
            chunk(kind::TRANSPOSED, &transposed(codec, header, buckets, transitions), records, HUGE)
        };
        if codec != Codec::None {
            let values = blob(codec, &few, HUGE);
            check(&name("values"), &simple_chunk(&true_blob(codec, &one_size), &values, 1));
            check(&name("sizes"), &simple_chunk(&blob(codec, &few, 500_000), &values, 50_000));
            check(&name("too many sizes"), &simple_chunk(&blob(codec, &few, 500_000), &values, 100));
            check(&name("header"), &transposed_chunk(&blob(codec, &few, HUGE), &[], &[], 1));
        }
        // One bucket, one buffer, one state that starts a record.
        let bucket = blob(codec, &few, HUGE);
        let header = [varint(1), varint(1), varint(bucket.len() as u64), varint(HUGE), vec![1, 3, 0, 0]];
        let header = true_blob(codec, &header.concat());
        check(&name("bucket"), &transposed_chunk(&header, &bucket, &[], 1));
        let header = true_blob(codec, &[0, 0, 1, 3, 0, 0]);
        check(&name("transitions"), &transposed_chunk(&header, &[], &blob(codec, &[0; 9], HUGE), 1000));
        check(&name("output"), &transposed_chunk(&header, &[], &true_blob(codec, &[]), 1));
    }
    for single_segment in [true, false] {
        let sizes = true_blob(Codec::Zstd, &one_size);
        let values = zstd_claiming(&few, HUGE, single_segment);
        check("zstd frame", &chunk(kind::SIMPLE, &simple(Codec::Zstd, &sizes, &values), 1, HUGE));
    }
}

#[test]
fn what_unpacks_to_much_and_stands_for_nothing_takes_no_memory() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    for (codec, size) in [(Codec::Zstd, 200 << 20), (Codec::Brotli, 8 << 20)] {
        let zeros = true_blob(codec, &vec![0; size]);
        let chunk = |header: &[u8], transitions: &[u8]| {
            chunk(kind::TRANSPOSED, &transposed(codec, header, &[], transitions), 1, HUGE)
        };
        check("header of zeros", &chunk(&zeros, &[]));
        // A state that does nothing.
        let why = check("transitions of zeros", &chunk(&true_blob(codec, &[0, 0, 1, 0, 0, 0]), &zeros));
        assert!(why.contains("too many steps"), "{why}");
        // The end of a submessage, again and again.
        let why = check("submessages", &chunk(&true_blob(codec, &[0, 0, 1, 14, 0, 0]), &zeros));
        assert!(why.contains("too many submessages"), "{why}");
    }
}

#[test]
fn lists_in_a_header_take_a_few_times_its_bytes() {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    // As many empty buckets, empty buffers or idle states as a header can list.
    let count = 290_000u64;
    let zeros = |n: u64| vec![0u8; n as usize];
    let buckets = [varint(count), varint(1), zeros(count + 1)].concat();
    let buffers = [varint(1), varint(count), zeros(count + 1)].concat();
    let states = [varint(0), varint(0), varint(count / 2), zeros(count)].concat();
    for (name, header) in [("buckets", buckets), ("buffers", buffers), ("states", states)] {
        let mut data = transposed(Codec::Zstd, &true_blob(Codec::Zstd, &header), &[], &[]);
        // More bytes after the header, so that such a long header is allowed.
        data.extend(vec![0; 4000]);
        check_within(30 * header.len(), name, &chunk(kind::TRANSPOSED, &data, 1, HUGE));
    }
}
