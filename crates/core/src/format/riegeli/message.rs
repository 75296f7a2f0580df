//! Recognises canonical protobuf messages, and splits them into fields.
//!
//! Canonical means that writing the fields again produces the same bytes: every varint has its shortest form, and every
//! group is closed. Only such messages can be split and put together again.

/// The value of a field in its stored form.
pub enum Value<'a> {
    /// All bytes of the varint.
    Varint(&'a [u8]),
    /// Four or eight bytes.
    Fixed(&'a [u8]),
    /// Bytes with their length in front.
    String {
        /// The length and the contents.
        stored: &'a [u8],
        /// The contents alone.
        contents: &'a [u8],
    },
    /// A group begins.
    GroupStart,
    /// A group ends.
    GroupEnd,
}

/// Takes the next field from `rest`. `None` if the field is not canonical.
pub fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(u32, Value<'a>)> {
    let (tag, _) = varint(rest, 5)?;
    let tag = u32::try_from(tag).ok()?;
    if tag < 8 {
        return None;
    }
    let value = match tag & 7 {
        0 => Value::Varint(varint(rest, 10)?.1),
        1 => Value::Fixed(take(rest, 8)?),
        2 => {
            let whole = *rest;
            let (length, prefix) = varint(rest, 5)?;
            let length = usize::try_from(u32::try_from(length).ok()?).ok()?;
            let contents = take(rest, length)?;
            Value::String { stored: &whole[..prefix.len() + length], contents }
        }
        3 => Value::GroupStart,
        4 => Value::GroupEnd,
        5 => Value::Fixed(take(rest, 4)?),
        _ => return None,
    };
    Some((tag, value))
}

/// Whether `bytes` are a canonical message. Does not check the contents of strings.
pub fn is_message(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut groups = Vec::new();
    while !rest.is_empty() {
        match next_field(&mut rest) {
            None => return false,
            Some((tag, Value::GroupStart)) => groups.push(tag >> 3),
            Some((tag, Value::GroupEnd)) if groups.pop() != Some(tag >> 3) => return false,
            Some(_) => {}
        }
    }
    groups.is_empty()
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(n)?;
    *rest = left;
    Some(taken)
}

/// A varint in its shortest form: the value and the bytes.
fn varint<'a>(rest: &mut &'a [u8], most: usize) -> Option<(u64, &'a [u8])> {
    let mut value = 0u64;
    for (i, &byte) in rest.iter().take(most).enumerate() {
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            let shortest = byte != 0 || i == 0;
            return shortest.then_some((value, take(rest, i + 1)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_messages_and_others() {
        for message in
            [&b""[..], b"\x08\x96\x01", b"\x0a\x02hi", b"\x0b\x10\x01\x0c", b"\x0d1234", b"\x0912345678"]
        {
            assert!(is_message(message), "{message:?}");
        }
        let others = [
            &b"\x00"[..],    // field 0
            b"\x08",         // no value
            b"\x08\x80\x00", // not the shortest form
            b"\x88\x00\x01", // tag not in the shortest form
            b"\x0a\x05hi",   // cut
            b"\x0b\x10\x01", // open group
            b"\x0b\x14",     // another group's end
            b"\x0e\x01",     // wire type 6
            b"\x0a\xff\xff\xff\xff\x1f",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
        ];
        for other in others {
            assert!(!is_message(other), "{other:?}");
        }
    }
}
