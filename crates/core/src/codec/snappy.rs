//! The raw block format of snappy: no framing, the length in front, no checksum.

use super::{Codec, broken, wrong_size};
use crate::error::{Error, Result};

/// A block must be shorter than this.
const MAX_BYTES: u64 = 1 << 32;

/// Whether so many bytes can be compressed into one block. The library works with 32-bit lengths and says 0
/// where its bound for the compressed size does not fit in them, which is at about 3.6 GiB.
pub fn fits(bytes: u64) -> bool {
    bytes < MAX_BYTES && usize::try_from(bytes).is_ok_and(|n| snap::raw::max_compress_len(n) > 0)
}

/// Decompresses one block, all of `input`, into all of `out`.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    let declared = snap::raw::decompress_len(input).map_err(|e| broken(Codec::Snappy, e))?;
    if declared != out.len() {
        return Err(wrong_size(Codec::Snappy, out.len(), declared));
    }
    if declared == 0 {
        // The library returns before it looks at what follows an empty block.
        return if input == [0] { Ok(()) } else { Err(broken(Codec::Snappy, "bytes follow the block")) };
    }
    let written = snap::raw::Decoder::new().decompress(input, out).map_err(|e| broken(Codec::Snappy, e))?;
    if written != out.len() {
        return Err(wrong_size(Codec::Snappy, out.len(), written));
    }
    Ok(())
}

/// Appends `input` as one block.
pub fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let too_long = || Error::argument(format!("snappy cannot hold {} bytes in one block", input.len()));
    if !fits(input.len() as u64) {
        return Err(too_long());
    }
    let begin = out.len();
    out.resize(begin + snap::raw::max_compress_len(input.len()), 0);
    let written = snap::raw::Encoder::new().compress(input, &mut out[begin..]).map_err(|_| too_long())?;
    out.truncate(begin + written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_known_before_it_is_tried() {
        assert!(fits(0) && fits(3 << 30));
        assert!(!fits(MAX_BYTES - 1) && !fits(MAX_BYTES) && !fits(u64::MAX));
    }
}
