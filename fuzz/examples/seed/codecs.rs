//! Compressed data of every codec, with right and wrong sizes and headers.

use super::{Outcome, save};
use anyrecord::codec::{Codec, Compression, gzip, snappy_frames};
use anyrecord_fuzz::input::Inverse;

/// Compressed data as our encoders write it.
pub fn small() -> Outcome {
    let text = b"the quick brown fox jumps over the lazy dog, ".repeat(20);
    let zeros = vec![0; (4 << 20) + 70_000];
    let codecs = [(Codec::None, 0, 0), (Codec::Brotli, 5, 18), (Codec::Zstd, 3, 18), (Codec::Snappy, 1, 0)];
    for (i, (codec, level, window_log)) in (0u8..).zip(codecs) {
        let compression = Compression { codec, level, window_log };
        for (name, whole) in [("none", &[][..]), ("short", b"abc"), ("text", &text), ("zeros", &zeros)] {
            let mut packed = Vec::new();
            compression.compress(whole, &mut packed)?;
            for (what, size) in
                [("right", whole.len()), ("less", whole.len() + 1), ("more", whole.len().max(1) - 1)]
            {
                let mut input = Inverse(vec![i | 0xf0]);
                input.varint(size as u64).bytes(&packed[..packed.len().min(60_000)]);
                let target = if name == "zeros" { "large_codec" } else { "codec" };
                save(target, &format!("{name}-{what}-{i}"), &input.0)?;
            }
            if name != "zeros" {
                let mut input = Inverse(vec![i | 4]);
                input.varint(2 * whole.len() as u64).bytes(&[1, 8]).bytes(whole);
                save("codec", &format!("pack-{name}-{i}"), &input.0)?;
            }
        }
        let mut large = Inverse(vec![i | 0xfc]);
        large.varint((4 << 20) + 1000).bytes(&[1, 1]).bytes(b"abcdefgh");
        save("large_codec", &format!("pack-large-{i}"), &large.0)?;
    }
    for (i, wrapper) in (0u8..).zip([gzip::Wrapper::Gzip, gzip::Wrapper::Zlib]) {
        for (name, whole) in
            [("none", &[][..]), ("short", b"abc"), ("text", &text), ("zeros", &zeros[..300_000])]
        {
            let packed = gzip::compress(wrapper, whole, 6)?;
            let mut input = Inverse(vec![i | 0xf0]);
            input.varint(whole.len() as u64).bytes(&packed);
            save("gzip", &format!("{name}-{i}"), &input.0)?;
            for choice in [1u8, 2] {
                let mut input = Inverse(vec![i | choice << 1 | 0x60]);
                input.varint(1 << 15).bytes(if choice == 1 {
                    &packed[wrapper.header(6).len()..]
                } else {
                    whole
                });
                save("gzip", &format!("{name}-{choice}-{i}"), &input.0)?;
            }
        }
    }
    for (name, whole) in [("none", &[][..]), ("short", b"abc"), ("text", &text), ("zeros", &zeros[..300_000])]
    {
        let mut packed = Vec::new();
        snappy_frames::Compressor::default().write(whole, &mut packed)?;
        for mode in [0u8, 2, 0xf0] {
            let mut input = Inverse(vec![mode]);
            input.varint(whole.len() as u64).bytes(if mode == 2 { whole } else { &packed });
            save("snappy_frames", &format!("{name}-{mode}"), &input.0)?;
        }
    }
    Ok(())
}

/// Compressed data of more than 4 MiB, with headers and elements that the encoders do not write.
pub fn large() -> Outcome {
    let size = (4 << 20) + 70_000;
    let mut packed = Vec::new();
    Compression { codec: Codec::Zstd, level: 1, window_log: 18 }.compress(&vec![0; size], &mut packed)?;
    let stated = (size as u32).to_le_bytes();
    // The frame without its magic bytes and header: the blocks follow the stated size.
    let at = packed.windows(4).position(|window| window == stated).map_or(9, |at| at + 4);
    let blocks = &packed[at..];
    let headers: [(&str, Vec<u8>); 8] = [
        ("reserved", [&[0xa8], &stated[..]].concat()),
        ("dictionary", [&[0xa1, 5], &stated[..]].concat()),
        ("no-dictionary", [&[0xa1, 0], &stated[..]].concat()),
        ("eight", [&[0xe0], &stated[..], &[0; 4]].concat()),
        ("two", vec![0x60, 1, 2]),
        ("one", vec![0x20, 7]),
        ("none", vec![0, 0x68]),
        ("none-narrow", vec![0, 0]),
    ];
    let zstd = |name: &str, header: &[u8], blocks: &[u8], size: usize| {
        let mut input = Inverse(vec![2]);
        input.varint(size as u64).bytes(&[0x28, 0xb5, 0x2f, 0xfd]).bytes(header).bytes(blocks);
        save("large_codec", &format!("zstd-{name}"), &input.0)
    };
    for (name, header) in &headers {
        zstd(name, header, blocks, size)?;
    }
    let unstated = [0, 0x68];
    zstd("longer", &unstated, &[blocks, b"abc"].concat(), size)?;
    zstd("cut", &unstated, &blocks[..blocks.len() - 2], size)?;
    zstd("too-much", &unstated, blocks, size - 1)?;
    zstd("too-little", &unstated, blocks, size + 1)?;
    // A literal and other elements, then copies that fill the rest.
    let whole = 64 * (size / 64);
    let snappy = |name: &str, front: &[u8], made: usize| {
        let (mut input, mut block) = (Inverse(vec![3 | 8]), Inverse::default());
        block.varint((whole + made) as u64).bytes(front).bytes(&[0xfe, 1, 0]);
        input.varint((whole + made) as u64).bytes(&block.0);
        save("large_codec", &format!("snappy-{name}"), &input.0)
    };
    snappy("short", &[0, b'a'], 1)?;
    snappy("literal", &[60 << 2, 1, b'a', b'b', 61 << 2, 1, 0, b'c', b'd'], 4)?;
    snappy("copies", &[0, b'a', 1, 1, 3, 1, 0, 0, 0], 6)?;
    snappy("before", &[1, 1], 4)?;
    snappy("zero", &[0, b'a', 1, 0], 5)?;
    snappy("more", &[0, b'a', 0, b'b'], 1)?;
    snappy("less", &[0, b'a'], 2)
}

/// A state machine that does nothing, with more transitions than are unpacked at once.
pub fn transitions() -> Outcome {
    // No bucket, no buffer, one state with tag 0 and itself as the next state, first state 0.
    let header = [0, 0, 1, 0, 0, 0];
    for (kind, codec) in [(b'b', Codec::Brotli), (b'z', Codec::Zstd)] {
        let compression = Compression { codec, level: 1, window_log: 18 };
        let mut data = vec![kind];
        for (part, is_header) in [(&header[..], true), (&vec![0; 2 << 20][..], false)] {
            let mut packed = Inverse::default();
            packed.varint(part.len() as u64);
            compression.compress(part, &mut packed.0)?;
            let mut out = Inverse::default();
            if is_header {
                out.slice(&packed.0)
            } else {
                out.bytes(&packed.0)
            };
            data.extend(out.0);
        }
        let mut input = Inverse(vec![0xc0]);
        input.varint(0).varint(0).bytes(&data);
        save("transposed_chunk", &format!("transitions-{}", codec.name()), &input.0)?;
    }
    Ok(())
}
