//! The journal of a set of files that is being published. It is read from disk after a crash.

use anyrecord::hash::crc32c;
use anyrecord::storage::journal::{Journal, Member};

/// A journal whose checksum is right. If the first byte is odd, its first lines are right too.
pub fn journal(data: &[u8]) {
    let Some((&mode, body)) = data.split_first() else { return };
    if Journal::decode(body).is_some() {
        // The bytes have a right checksum of their own.
        check(body);
    }
    let mut text = Vec::new();
    if mode & 1 != 0 {
        text.extend_from_slice(b"anyrecord publish 1\ninode 7\n");
    }
    text.extend_from_slice(body);
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let sum = crc32c::append(0, &text);
    text.extend(format!("end {sum:08x}\n").bytes());
    check(&text);
}

fn check(bytes: &[u8]) {
    let Some(journal) = Journal::decode(bytes) else { return };
    let members = journal.new.iter().map(|(member, _)| member).chain(&journal.old);
    for Member { hidden, name } in members {
        assert!(hidden.as_encoded_bytes().starts_with(b"."), "{hidden:?} is not hidden");
        for name in [hidden, name] {
            let bytes = name.as_encoded_bytes();
            let is_file = !bytes.is_empty() && bytes != b"." && bytes != b".." && !bytes.contains(&b'/');
            assert!(is_file && !bytes.contains(&0), "{name:?} is not the name of a file");
        }
    }
    let Ok(written) = journal.encode() else { panic!("what was read cannot be written") };
    assert_eq!(Journal::decode(&written).as_ref(), Some(&journal));
}
