//! CRC-32 of bytes that are copied.
//!
//! The hash is that of the copy. The bytes may lie in a memory map, and another process may overwrite the file meanwhile.

use super::crc32::{Hasher, hash};

/// Copies bytes to `out`, which has the same length, and returns the CRC-32 of the copy.
#[inline]
pub fn copy(bytes: &[u8], out: &mut [u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= avx512::LEAST && avx512::is_there() && bytes.len() == out.len() {
        return avx512::copy(bytes, out);
    }
    out.copy_from_slice(bytes);
    hash(out)
}

/// One loop that copies and hashes. The processor hashes while it waits for memory. Measured for records of 100 KB: 4.3 µs
/// instead of 5.6 µs.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::Hasher;
    use crate::prefetch;
    use std::arch::x86_64::{
        __m512i, _mm_cvtsi32_si128, _mm512_clmulepi64_epi128, _mm512_setr_epi64, _mm512_storeu_si512,
        _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    /// Shorter records are copied first and then hashed, which is as fast.
    pub const LEAST: usize = 2 << 10;
    /// The bytes of one register, and of one turn of the loop.
    const PACKET: usize = 64;
    const TURN: usize = 4 * PACKET;
    /// The processor's own prefetching ends at each page.
    const AHEAD: usize = 2 << 10;

    /// The polynomial without its highest power.
    const POLYNOMIAL: u32 = 0x04C1_1DB7;
    /// Bits that lie between a packet and the one it is added to.
    const DISTANCE: usize = 8 * TURN;
    /// What the lower and the upper half of 128 bits are multiplied with, to move them by [`DISTANCE`].
    const LOWER: i64 = power(DISTANCE + 32);
    const UPPER: i64 = power(DISTANCE - 32);

    /// x to the power of `exponent`, modulo the polynomial. The lowest bit has the highest power, and there are 33 bits,
    /// as a product without carry needs them.
    const fn power(exponent: usize) -> i64 {
        let (mut value, mut i) = (1u32, 0);
        while i < exponent {
            value = (value << 1) ^ if value >> 31 == 1 { POLYNOMIAL } else { 0 };
            i += 1;
        }
        (value.reverse_bits() as i64) << 1
    }

    /// Whether the processor has the instructions.
    #[inline]
    pub fn is_there() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
    }

    /// Copies and hashes at least one turn of bytes. `out` has the same length. Call it only if it [`is_there`].
    pub fn copy(bytes: &[u8], out: &mut [u8]) -> u32 {
        let whole = bytes.len() / TURN * TURN;
        let ((bytes, rest), (out, rest_out)) = (bytes.split_at(whole), out.split_at_mut(whole));
        // The bytes so far have the same remainder as these.
        let mut folded = [0; TURN];
        // SAFETY: the processor has the instructions. The slices have the same length: a multiple of a turn, and not zero.
        unsafe { copy_turns(bytes, out, &mut folded) };
        rest_out.copy_from_slice(rest);
        // The loop has inverted the first bits. The hasher would do so, too, if it did not begin with zeros.
        let mut hasher = Hasher::new_with_initial(!0);
        hasher.update(&folded);
        hasher.update(rest_out);
        hasher.finalize()
    }

    /// A packet at any address.
    #[repr(C, packed)]
    #[derive(Clone, Copy)]
    struct Packet(__m512i);

    /// Copies a packet from `from` to `to`.
    ///
    /// # Safety
    /// The processor has AVX-512. A whole packet can be read at `from` and written at `to`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn copy_packet(from: *const u8, to: *mut u8) -> __m512i {
        // SAFETY: the caller makes sure of it. Volatile, so that the bytes are loaded once: another process may change them
        // before they are loaded again, and then the hash would not be that of the copy.
        unsafe {
            let packet = from.cast::<Packet>().read_volatile().0;
            _mm512_storeu_si512(to.cast(), packet);
            packet
        }
    }

    /// # Safety
    /// The processor has AVX-512 and VPCLMULQDQ. Both slices have the same length: a multiple of a turn, and not zero.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    unsafe fn copy_turns(bytes: &[u8], out: &mut [u8], folded: &mut [u8; TURN]) {
        let (from, to, end) = (bytes.as_ptr(), out.as_mut_ptr(), bytes.len());
        let keys = _mm512_setr_epi64(LOWER, UPPER, LOWER, UPPER, LOWER, UPPER, LOWER, UPPER);
        // SAFETY: a whole packet begins at `at` in both slices, as the callers of this closure make sure.
        let copy = |at: usize| unsafe { copy_packet(from.add(at), to.add(at)) };
        let add = |sum: __m512i, packet: __m512i| {
            let lower = _mm512_clmulepi64_epi128::<0x00>(sum, keys);
            let upper = _mm512_clmulepi64_epi128::<0x11>(sum, keys);
            _mm512_ternarylogic_epi64::<0x96>(lower, upper, packet) // exclusive or of all three
        };
        let mut sums = [0, 1, 2, 3].map(|i| copy(i * PACKET));
        sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
        let mut at = TURN;
        while at < end {
            // Nothing behind the record is prefetched.
            if at + AHEAD < end {
                for i in 0..4 {
                    prefetch::address(from.wrapping_add(at + AHEAD + i * PACKET));
                }
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = add(*sum, copy(at + i * PACKET));
            }
            at += TURN;
        }
        for (sum, place) in sums.into_iter().zip(folded.chunks_exact_mut(PACKET)) {
            // SAFETY: the place has the bytes of a packet.
            unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), sum) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_copy_whatever_the_length_and_the_place() {
        let bytes: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let lengths = (0..20).chain(2000..2400).chain([4095, 4096, 4097, 65_536, 69_000, 69_999]);
        for length in lengths {
            for place in [0, 1, 13] {
                let (part, mut out) =
                    (&bytes[place..][..length.min(bytes.len() - place)], vec![0; length + 2]);
                let found = copy(part, &mut out[1..=part.len()]);
                assert_eq!(found, hash(part), "{length} bytes at {place}");
                assert_eq!(&out[1..=part.len()], part, "{length} bytes at {place}");
                assert_eq!((out[0], out.last()), (0, Some(&0)), "nothing around it is written");
            }
        }
    }
}
