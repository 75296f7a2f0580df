//! Options of the writer: from keywords to settings, and to the string in the footer.

use crate::codec::{Codec, Compression};
use crate::error::{Error, Result};
use crate::format::options::WriteOptions;

const KEYWORDS: [&str; 8] = [
    "codec",
    "level",
    "window_log",
    "group_size",
    "transpose",
    "transpose_bucket_size",
    "pad_to_block_boundary",
    "num_records",
];

const ZSTD_WINDOW_LOG: u32 = 20;
const BROTLI_WINDOW_LOG: u32 = 22;
const BUCKET_SIZE: u64 = 256;

/// How a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Compression of data and footer.
    pub compression: Compression,
    /// Records in a chunk.
    pub group_size: u64,
    /// The bucket size of transposed chunks. `None` for simple chunks.
    pub transpose: Option<u64>,
    /// Whether padding up to the next block boundary follows every chunk.
    pub pad: bool,
    /// Whether the options string in the footer states the window.
    window_stated: bool,
}

impl Settings {
    /// Reads the settings from keywords. Refuses unknown keywords and invalid values.
    pub fn new(options: &WriteOptions) -> Result<Self> {
        options.only("array_record", &KEYWORDS)?;
        let refuse = |keyword: &str, codec: &str| {
            Err(Error::argument(format!("codec '{codec}' has no option '{keyword}'")))
        };
        let codec = options.word("codec", &["none", "brotli", "zstd", "snappy"])?.unwrap_or("zstd");
        let given_level = options.int::<i32>("level", i32::MIN..=i32::MAX);
        let given_window = options.has("window_log");
        let (codec, level, window) = match codec {
            "none" if given_level.as_ref().is_ok_and(Option::is_none) => (Codec::None, 0, None),
            "none" => return refuse("level", codec),
            "brotli" => {
                let level = options.int("level", 0..=11)?.unwrap_or(6);
                (Codec::Brotli, level, options.int("window_log", 10..=30)?.or(Some(BROTLI_WINDOW_LOG)))
            }
            "snappy" => (Codec::Snappy, options.int("level", 1..=2)?.unwrap_or(1), None),
            _ => {
                let level = options.int("level", -131_072..=22)?.unwrap_or(3);
                (Codec::Zstd, level, options.int("window_log", 10..=31)?.or(Some(ZSTD_WINDOW_LOG)))
            }
        };
        if given_window && window.is_none() {
            return refuse("window_log", codec.name());
        }
        let transpose = options.flag("transpose")?.unwrap_or(false);
        let bucket_size = options.int("transpose_bucket_size", 1..=u64::MAX)?;
        if bucket_size.is_some() && !transpose {
            return Err(Error::argument("transpose_bucket_size needs transpose=True"));
        }
        options.int("num_records", 0..=u64::MAX)?;
        Ok(Settings {
            compression: Compression { codec, level, window_log: window.unwrap_or(0) },
            group_size: options.int("group_size", 1..=2_147_483_647u64)?.unwrap_or(1),
            transpose: transpose.then(|| bucket_size.unwrap_or(BUCKET_SIZE)),
            pad: options.flag("pad_to_block_boundary")?.unwrap_or(false),
            window_stated: codec == Codec::Zstd || given_window,
        })
    }

    /// Whether a writer with the options in `text` encodes chunks exactly as these settings do.
    pub fn encode_like(&self, text: &str) -> bool {
        encoding_parts(text) == encoding_parts(&self.to_text())
    }

    /// The options string that the original writer stores in the footer for these settings.
    pub fn to_text(&self) -> String {
        let Compression { codec, level, window_log } = self.compression;
        let mut text = format!(
            "group_size:{},transpose:{},pad_to_block_boundary:{}",
            self.group_size,
            self.transpose.is_some(),
            self.pad
        );
        if let Some(bucket_size) = self.transpose {
            text += &format!(",transpose_bucket_size:{bucket_size}");
        }
        text += &match codec {
            Codec::None => ",uncompressed".to_owned(),
            Codec::Brotli => format!(",brotli:{level}"),
            Codec::Zstd => format!(",zstd:{level}"),
            Codec::Snappy => ",snappy".to_owned(),
        };
        if self.window_stated {
            text += &format!(",window_log:{window_log}");
        }
        text + ",max_parallelism:1"
    }
}

/// The parts of an options string that decide how a chunk is encoded.
fn encoding_parts(text: &str) -> Vec<&str> {
    let affects_encoding = |part: &&str| !part.starts_with("pad_to_") && !part.starts_with("max_parallelism");
    text.split(',').filter(affects_encoding).collect()
}

/// The codec that an options string in a footer names.
pub fn codec_in(text: &str) -> Option<Codec> {
    text.split(',').find_map(|option| match option.split(':').next()?.trim() {
        "uncompressed" => Some(Codec::None),
        "brotli" => Some(Codec::Brotli),
        "zstd" => Some(Codec::Zstd),
        "snappy" => Some(Codec::Snappy),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(options: WriteOptions) -> String {
        Settings::new(&options).unwrap().to_text()
    }

    #[test]
    fn options_strings_of_the_original() {
        let new = WriteOptions::default;
        let front = "group_size:1,transpose:false,pad_to_block_boundary:false";
        assert_eq!(text(new()), format!("{front},zstd:3,window_log:20,max_parallelism:1"));
        assert_eq!(text(new().with_text("codec", "none")), format!("{front},uncompressed,max_parallelism:1"));
        assert_eq!(text(new().with_text("codec", "snappy")), format!("{front},snappy,max_parallelism:1"));
        let brotli = new().with_text("codec", "brotli");
        assert_eq!(text(brotli.clone()), format!("{front},brotli:6,max_parallelism:1"));
        assert_eq!(
            text(brotli.with_int("window_log", 22)),
            format!("{front},brotli:6,window_log:22,max_parallelism:1")
        );
        assert_eq!(
            text(new().with_flag("transpose", true).with_int("group_size", 7).with_int("level", -5)),
            "group_size:7,transpose:true,pad_to_block_boundary:false,transpose_bucket_size:256,zstd:-5,\
             window_log:20,max_parallelism:1"
        );
    }

    #[test]
    fn refusals_name_the_valid_values() {
        let new = WriteOptions::default;
        let none = || new().with_text("codec", "none");
        let cases = [
            (new().with_int("level", 23), "-131072 to 22"),
            (new().with_int("group_size", 0), "1 to 2147483647"),
            (new().with_int("window_log", 32), "10 to 31"),
            (new().with_text("codec", "gzip"), "none, brotli, zstd, snappy"),
            (new().with_text("codec", "brotli").with_int("level", 12), "0 to 11"),
            (new().with_text("codec", "brotli").with_int("window_log", 31), "10 to 30"),
            (new().with_text("codec", "snappy").with_int("level", 3), "1 to 2"),
            (new().with_text("codec", "snappy").with_int("window_log", 20), "no option 'window_log'"),
            (none().with_int("level", 1), "no option 'level'"),
            (none().with_text("level", "high"), "no option 'level'"),
            (none().with_int("window_log", 20), "no option 'window_log'"),
            (new().with_int("transpose_bucket_size", 20), "transpose=True"),
            (new().with_int("chunk_size", 1), "it has: codec, level"),
        ];
        for (options, expected) in cases {
            let error = Settings::new(&options).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} should contain {expected}");
        }
    }

    #[test]
    fn the_codec_is_found_in_the_string() {
        assert_eq!(codec_in("group_size:1,zstd:3,window_log:20"), Some(Codec::Zstd));
        assert_eq!(codec_in("group_size:1,uncompressed"), Some(Codec::None));
        assert_eq!(codec_in("group_size:1"), None);
    }
}
