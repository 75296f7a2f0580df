//! The loop that copies and hashes at once, with AVX2.
//!
//! A hash waits for its own results most of the time, so a copy in the same loop costs almost nothing.

use crate::hash::highway::KEY;
use crate::prefetch;
use highway::{AvxHash, HighwayHash};
use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_set_epi64x, _mm256_shuffle_epi8,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

/// The bytes that are hashed in one step.
const PACKET: usize = 32;
/// How far ahead bytes are loaded into the processor's cache.
const AHEAD: usize = 2048;
/// The layout of a saved state of the `highway` crate: four vectors of four words, a packet that is not full, and its
/// length as 32 bits.
const SAVED: usize = 4 * 4 * 8 + PACKET + 4;

/// The vectors `v0`, `v1`, `mul0` and `mul1` of the algorithm.
type State = [[u64; 4]; 4];

/// As the outer one. There is one only if the CPU has AVX2.
pub struct CopyHasher {
    state: State,
    packet: [u8; PACKET],
    /// How many bytes of the packet are there. Less than all.
    filled: usize,
}

impl CopyHasher {
    /// A hasher without input. None if the CPU has no AVX2.
    #[inline]
    pub fn new() -> Option<Self> {
        if !is_x86_feature_detected!("avx2") {
            return None;
        }
        let mul0 =
            [0xdbe6_d5d5_fe4c_ce2f, 0xa409_3822_299f_31d0, 0x1319_8a2e_0370_7344, 0x243f_6a88_85a3_08d3];
        let mul1 =
            [0x3bd3_9e10_cb0e_f593, 0xc0ac_f169_b5f1_8a8c, 0xbe54_66cf_34e9_0c6c, 0x4528_21e6_38d0_1377];
        let (mut v0, mut v1) = (mul0, mul1);
        for (lane, key) in KEY.0.iter().enumerate() {
            v0[lane] ^= key;
            v1[lane] ^= key.rotate_left(32);
        }
        Some(CopyHasher { state: [v0, v1, mul0, mul1], packet: [0; PACKET], filled: 0 })
    }

    /// Adds bytes that are not copied. For few bytes.
    #[inline]
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = bytes.len().min(PACKET - self.filled);
            self.packet[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.added(count);
            bytes = &bytes[count..];
        }
    }

    /// Copies bytes to `out`, which has the same length, and adds the copy.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8], out: &mut [u8]) {
        let (bytes, out) = self.fill_packet(bytes, out);
        let last = bytes.len() % PACKET;
        let whole = 0..bytes.len() - last;
        // SAFETY: the CPU has AVX2, or there would be no `self`. Both slices have the same length, which is a multiple
        // of a packet. They do not overlap, because one is borrowed mutably.
        unsafe { copy_packets(&mut self.state, &bytes[whole.clone()], &mut out[whole.clone()]) };
        out[whole.end..].copy_from_slice(&bytes[whole.end..]);
        self.update(&out[whole.end..]);
    }

    /// Does what [`copy`](Self::copy) does for two hashers, in one loop. While one hash waits for its own results, the
    /// processor works on the other.
    #[inline]
    pub fn copy_two(two: [(&mut Self, &[u8], &mut [u8]); 2]) {
        let [(one, bytes, out), (other, other_bytes, other_out)] = two;
        let (bytes, out) = one.fill_packet(bytes, out);
        let (other_bytes, other_out) = other.fill_packet(other_bytes, other_out);
        let both = bytes.len().min(other_bytes.len()) / PACKET * PACKET;
        let (now, later) = bytes.split_at(both);
        let (place, place_later) = out.split_at_mut(both);
        let (other_now, other_later) = other_bytes.split_at(both);
        let (other_place, other_place_later) = other_out.split_at_mut(both);
        // SAFETY: the CPU has AVX2, or there would be no hashers. All slices have the same length, which is a multiple of
        // a packet. What is written does not overlap with anything, because it is borrowed mutably.
        unsafe {
            copy_packets_of_two([(&mut one.state, now, place), (&mut other.state, other_now, other_place)]);
        }
        one.copy(later, place_later);
        other.copy(other_later, other_place_later);
    }

    /// Copies and adds the bytes that belong to a packet that was begun. Returns the others: as many bytes as places.
    #[inline]
    fn fill_packet<'b, 'o>(&mut self, bytes: &'b [u8], out: &'o mut [u8]) -> (&'b [u8], &'o mut [u8]) {
        // The lengths are compared here, because the loops rely on them.
        let length = bytes.len().min(out.len());
        let first = if self.filled == 0 { 0 } else { length.min(PACKET - self.filled) };
        let (begin, rest) = bytes[..length].split_at(first);
        let (out_begin, out_rest) = out[..length].split_at_mut(first);
        out_begin.copy_from_slice(begin);
        self.update(out_begin);
        (rest, out_rest)
    }

    /// The hash of all bytes.
    #[inline]
    pub fn finish(self) -> u64 {
        let mut saved = [0; SAVED];
        let (words, rest) = saved.split_at_mut(4 * 4 * 8);
        for (place, word) in words.as_chunks_mut::<8>().0.iter_mut().zip(self.state.as_flattened()) {
            *place = word.to_le_bytes();
        }
        rest[..PACKET].copy_from_slice(&self.packet);
        rest[PACKET..].copy_from_slice(&(self.filled as u32).to_le_bytes());
        // SAFETY: the CPU has AVX2, or there would be no `self`.
        unsafe { AvxHash::force_from_checkpoint(saved) }.finalize64()
    }

    /// `count` bytes were added to the packet.
    #[inline]
    fn added(&mut self, count: usize) {
        self.filled += count;
        if self.filled == PACKET {
            let mut copy = [0; PACKET];
            // SAFETY: as in `copy`.
            unsafe { copy_packets(&mut self.state, &self.packet, &mut copy) };
            self.filled = 0;
        }
    }
}

/// A state in registers.
struct Vectors {
    v0: __m256i,
    v1: __m256i,
    mul0: __m256i,
    mul1: __m256i,
}

impl Vectors {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(state: &State) -> Self {
        // SAFETY: all are four words.
        let [v0, v1, mul0, mul1] =
            [0, 1, 2, 3].map(|i| unsafe { _mm256_loadu_si256(state[i].as_ptr().cast()) });
        Vectors { v0, v1, mul0, mul1 }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store(self, state: &mut State) {
        for (words, vector) in state.iter_mut().zip([self.v0, self.v1, self.mul0, self.mul1]) {
            // SAFETY: `words` are four words.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
        }
    }

    /// Hashes a packet.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn add(&mut self, packet: __m256i) {
        let (high, low) = (0x0708_0609_0D0A_040B, 0x000F_010E_0502_0C03);
        let order = _mm256_set_epi64x(high, low, high, low);
        self.v1 = _mm256_add_epi64(self.v1, _mm256_add_epi64(self.mul0, packet));
        self.mul0 = _mm256_xor_si256(self.mul0, _mm256_mul_epu32(self.v1, _mm256_srli_epi64(self.v0, 32)));
        self.v0 = _mm256_add_epi64(self.v0, self.mul1);
        self.mul1 = _mm256_xor_si256(self.mul1, _mm256_mul_epu32(self.v0, _mm256_srli_epi64(self.v1, 32)));
        self.v0 = _mm256_add_epi64(self.v0, _mm256_shuffle_epi8(self.v1, order));
        self.v1 = _mm256_add_epi64(self.v1, _mm256_shuffle_epi8(self.v0, order));
    }
}

/// A packet at any address.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Packet(__m256i);

/// Copies a packet from `from` to `to`.
///
/// # Safety
/// The CPU has AVX2. A whole packet can be read at `from` and written at `to`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn copy_packet(from: *const u8, to: *mut u8) -> __m256i {
    // SAFETY: the caller makes sure of it. Volatile, so that the bytes are loaded once: another process may change them
    // before they are loaded again, and then the hash would not be that of the copy.
    unsafe {
        let packet = from.cast::<Packet>().read_volatile().0;
        _mm256_storeu_si256(to.cast(), packet);
        packet
    }
}

/// Copies whole packets, and adds the copies to the state of a hash.
///
/// # Safety
/// The CPU has AVX2. Both slices have the same length, which is a multiple of a packet.
#[target_feature(enable = "avx2")]
unsafe fn copy_packets(state: &mut State, bytes: &[u8], out: &mut [u8]) {
    let mut vectors = Vectors::load(state);
    let (from, to, end) = (bytes.as_ptr(), out.as_mut_ptr(), bytes.len());
    // SAFETY: a whole packet begins at `at` in both slices, as the caller of this closure makes sure.
    let mut copy = |at: usize| vectors.add(unsafe { copy_packet(from.add(at), to.add(at)) });
    let mut at = 0;
    // The processor's own prefetching ends at each page. Nothing behind the record is prefetched.
    while at + AHEAD < end {
        prefetch::address(from.wrapping_add(at + AHEAD));
        copy(at);
        copy(at + PACKET);
        at += 2 * PACKET;
    }
    while at < end {
        copy(at);
        at += PACKET;
    }
    vectors.store(state);
}

/// Does what [`copy_packets`] does, for two hashes at once.
///
/// # Safety
/// The CPU has AVX2. All four slices have the same length, which is a multiple of a packet.
#[target_feature(enable = "avx2")]
unsafe fn copy_packets_of_two(two: [(&mut State, &[u8], &mut [u8]); 2]) {
    let [(state, bytes, out), (other_state, other_bytes, other_out)] = two;
    let (mut vectors, mut other_vectors) = (Vectors::load(state), Vectors::load(other_state));
    let (from, to, end) = (bytes.as_ptr(), out.as_mut_ptr(), bytes.len());
    let (other_from, other_to) = (other_bytes.as_ptr(), other_out.as_mut_ptr());
    // SAFETY: a whole packet begins at `at` in all slices, as the caller of this closure makes sure.
    let mut copy = |at: usize| unsafe {
        let packet = copy_packet(from.add(at), to.add(at));
        let other_packet = copy_packet(other_from.add(at), other_to.add(at));
        vectors.add(packet);
        other_vectors.add(other_packet);
    };
    let mut at = 0;
    while at + AHEAD < end {
        prefetch::address(from.wrapping_add(at + AHEAD));
        prefetch::address(other_from.wrapping_add(at + AHEAD));
        copy(at);
        copy(at + PACKET);
        at += 2 * PACKET;
    }
    while at < end {
        copy(at);
        at += PACKET;
    }
    vectors.store(state);
    other_vectors.store(other_state);
}
