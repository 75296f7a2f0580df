//! Errors of stores, in words that say what to try. They never contain a secret.

use super::client::{Answer, OtherHost};
use super::sending::Garbled;
use super::url::Kind;
use crate::error::Error;
use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;
use std::io::ErrorKind;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It reads, or lists.
    Reading,
    /// It stores or deletes something.
    Writing,
}

impl Doing {
    /// The beginning of an error.
    pub fn failed(self) -> &'static str {
        match self {
            Doing::Reading => "cannot read",
            Doing::Writing => "cannot write",
        }
    }
}

/// Whether to send a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// No: the answer would be the same.
    Never,
    /// Yes, after a while.
    Later,
    /// Yes, and fewer at once.
    Overloaded,
    /// Yes, but not for long if the server has never answered.
    Unreachable,
}

/// A request that failed.
#[derive(Debug)]
pub struct Failed {
    /// What went wrong.
    pub error: Error,
    /// Whether to send it again.
    pub again: Again,
    /// Whether the object has no such range, or the store no such ranges.
    pub is_range: bool,
}

impl Failed {
    /// A failure that sending the request again does not change.
    pub fn finally(error: Error) -> Self {
        Failed { error, again: Again::Never, is_range: false }
    }

    /// A failure that may go away.
    pub fn for_now(kind: ErrorKind, what: &'static str) -> Self {
        let error = Error::io(what, std::io::Error::new(kind, "the server does not answer as it should"));
        Failed::later(error)
    }

    /// A failure that may go away.
    pub fn later(error: Error) -> Self {
        Failed { error, again: Again::Later, is_range: false }
    }
}

/// The cause of an error that is of a given type.
fn cause<'e, T: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e T> {
    std::iter::successors(Some(error), |error| (*error).source()).find_map(|error| error.downcast_ref())
}

/// The last cause of an error: usually the shortest sentence.
fn root(error: &(dyn StdError + 'static)) -> String {
    let last = std::iter::successors(Some(error), |error| (*error).source()).last();
    last.map_or_else(String::new, ToString::to_string)
}

/// What `<Code>` or `<Message>` says in the error of a server.
fn tag(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once("</").filter(|(value, _)| value.len() < 300)?;
    // Nothing that moves the cursor of a terminal, or breaks a line of a log.
    Some(value.replace(|c: char| c.is_control(), " "))
}

fn io(kind: ErrorKind, what: &'static str, detail: impl Into<String>) -> Error {
    Error::io(what, std::io::Error::new(kind, detail.into()))
}

/// The error of a store that could not be made.
pub fn of_store(error: &StoreError) -> Error {
    Error::argument(format!("the store cannot be used: {}", root(error)))
}

/// The error of a request to a store of a kind.
pub fn of_request(error: &StoreError, answer: &Answer, kind: Kind, doing: Doing) -> Failed {
    let text = error.to_string();
    let code = &*tag(&text, "Code").unwrap_or_default();
    if let Some(other) = cause::<OtherHost>(error) {
        let error = io(ErrorKind::Other, doing.failed(), other.to_string());
        return Failed::finally(
            error.hint("open the address that it redirects to, or pass storage={\"follow_redirects\": True}"),
        );
    }
    let answered = |status: u16| {
        let said = format!("the server answered {status} {code}");
        io(ErrorKind::Other, doing.failed(), said.trim_end())
    };
    if doing == Doing::Writing
        && let Some(failed) = of_writing(error, answer, &text, code)
    {
        return failed;
    }
    match answer.status {
        Some(status @ (429 | 503)) => {
            let hint = "it is overloaded: use fewer processes, or storage={\"max_requests\": 8}";
            let error = answered(status).hint(hint);
            return Failed { error, again: Again::Overloaded, is_range: false };
        }
        Some(status @ (408 | 500 | 502 | 504 | 509 | 520..=530)) => {
            return Failed::later(answered(status).hint("the server has a problem: try again later"));
        }
        _ => {}
    }
    // An empty object has no ranges. A server says so with 416; the store in memory has only an error for it.
    let is_range = match error {
        StoreError::NotSupported { .. } => true,
        StoreError::Generic { .. } if kind == Kind::Memory => true,
        _ => answer.status == Some(416),
    };
    Failed { again: again(error), error: sentence(error, answer, &text, code, kind, doing), is_range }
}

/// The errors that only requests have that store something.
fn of_writing(error: &StoreError, answer: &Answer, text: &str, code: &str) -> Option<Failed> {
    if let Some(garbled) = cause::<Garbled>(error) {
        let error = io(ErrorKind::InvalidData, "cannot write", garbled.to_string());
        let hint =
            "check the network; if this store sends other checksums, pass storage={\"check_uploads\": False}";
        return Some(Failed::later(error.hint(hint)));
    }
    // S3 compares the bytes itself with the hash that the signature covers.
    if ["BadDigest", "XAmzContentSHA256Mismatch", "Md5Mismatch"].contains(&code) {
        let garbled = "other bytes arrived at the server than were sent: it found another hash";
        let error = io(ErrorKind::InvalidData, "cannot write", garbled);
        return Some(Failed::later(error.hint("check the network")));
    }
    let said = |status: u16| match tag(text, "Message") {
        Some(message) => format!("the server answered {status} {code}: {message}"),
        None => format!("the server answered {status} {code}").trim_end().to_owned(),
    };
    match (answer.status, error) {
        // Two requests for the same object at once. S3 asks to send this one again.
        (Some(status @ 409), _) if code == "ConditionalRequestConflict" || code == "OperationAborted" => {
            Some(Failed::later(io(ErrorKind::ResourceBusy, "cannot write", said(status))))
        }
        (Some(409 | 412), _) | (None, StoreError::AlreadyExists { .. }) => {
            let error = io(ErrorKind::AlreadyExists, "will not overwrite", "there is an object of that name");
            Some(Failed::finally(error.hint("pass overwrite=True to replace it")))
        }
        (Some(status @ 404), _) if code == "NoSuchUpload" => {
            let error = io(ErrorKind::NotFound, "the upload is gone", said(status));
            let hint = "another process has aborted it, or a lifecycle rule of the bucket; write it again";
            Some(Failed::finally(error.hint(hint)))
        }
        // The crate does not tell these apart for every request of every store.
        (Some(status @ (401 | 403)), StoreError::Generic { .. }) => {
            let error = io(ErrorKind::PermissionDenied, "access is denied", said(status));
            Some(Failed::finally(error.hint("check the credentials and their permissions")))
        }
        (Some(status @ 404), StoreError::Generic { .. }) => {
            let error = io(ErrorKind::NotFound, "there is no such object or bucket", said(status));
            Some(Failed::finally(error.hint("check the name and the account")))
        }
        // Requests that delete are sent in batches. The answer to a batch is a success, with a status for each object inside.
        (Some(200..300), _) if is_missing(error, text) => {
            let error =
                io(ErrorKind::NotFound, "there is no such object", "the store has nothing of that name");
            Some(Failed::finally(error.hint("check the name")))
        }
        (Some(200..300), _) if is_denied(error, text) => {
            let error =
                io(ErrorKind::PermissionDenied, "access is denied", "the store refuses to delete the object");
            Some(Failed::finally(error.hint("check the credentials and their permissions")))
        }
        // An error in the body of an answer that began well.
        (Some(status @ 200..300), _) => {
            Some(Failed::later(io(ErrorKind::Other, "cannot write", said(status))))
        }
        (Some(status @ (405 | 501)), _) => {
            let error = io(ErrorKind::Unsupported, "cannot write", said(status));
            Some(Failed::finally(error.hint("the server takes no files: write to a local path")))
        }
        (Some(413), _) => {
            let error = io(ErrorKind::FileTooLarge, "cannot write", said(413));
            Some(Failed::finally(error.hint("the server takes no objects or parts of that size")))
        }
        _ => None,
    }
}

/// Whether an error in the answer to a batch says that there is no such object.
fn is_missing(error: &StoreError, text: &str) -> bool {
    // S3 does not mind, but some servers of its protocol do. The crate has only words for their answer.
    matches!(error, StoreError::NotFound { .. }) || text.contains("(code: NoSuchKey)")
}

/// Whether an error in the answer to a batch says that access is denied.
fn is_denied(error: &StoreError, text: &str) -> bool {
    let is_refused =
        matches!(error, StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. });
    is_refused || text.contains("(code: AccessDenied)")
}

/// Whether an error without an answer of the server may go away.
fn again(error: &StoreError) -> Again {
    match cause::<HttpError>(error).map(HttpError::kind) {
        Some(_) if is_of_certificate(error) => Again::Never,
        Some(HttpErrorKind::Connect) => Again::Unreachable,
        Some(HttpErrorKind::Request | HttpErrorKind::Timeout | HttpErrorKind::Interrupted) => Again::Later,
        // A body that ends early is an error of the decoder.
        Some(HttpErrorKind::Decode) => Again::Later,
        _ => Again::Never,
    }
}

fn sentence(error: &StoreError, answer: &Answer, text: &str, code: &str, kind: Kind, doing: Doing) -> Error {
    let cannot = doing.failed();
    // If the client itself gave up, the last answer says nothing about it.
    let has_given_up = cause::<HttpError>(error).is_some();
    let status = answer.status.filter(|status| !has_given_up && !(200..300).contains(status));
    let message = tag(text, "Message").unwrap_or_default();
    let said = match (status, code) {
        (Some(status), "") => format!("the server answered {status}"),
        (Some(status), code) => format!("the server answered {status} {code}: {message}"),
        (None, _) => root(error),
    };
    let is_region = code == "PermanentRedirect"
        || code == "AuthorizationHeaderMalformed"
        || status == Some(301)
        || text.contains("configured region");
    let failed =
        |what: &'static str, said: &str, hint: &'static str| io(ErrorKind::Other, what, said).hint(hint);
    match error {
        _ if is_region && kind == Kind::S3 => failed(
            cannot,
            &said,
            "the bucket is in another region: pass storage={\"region\": ...} or set AWS_REGION",
        ),
        _ if matches!(status, Some(300..400)) => {
            failed(cannot, &said, "it redirects without saying where: check the address")
        }
        StoreError::NotFound { .. } if code == "NoSuchBucket" || code == "ContainerNotFound" => {
            io(ErrorKind::NotFound, "there is no such bucket", said).hint("check the name and the account")
        }
        StoreError::NotFound { .. } => io(ErrorKind::NotFound, "there is no such object", said)
            .hint("check the name; a folder needs a / at its end or a pattern"),
        StoreError::PermissionDenied { .. } => io(ErrorKind::PermissionDenied, "access is denied", said)
            .hint("check the credentials and their permissions, and that the object exists"),
        StoreError::Unauthenticated { .. } => {
            io(ErrorKind::PermissionDenied, "credentials are missing or wrong", said).hint(credentials(kind))
        }
        _ if is_without_credentials(text) => {
            let where_looked =
                "not in the options, not in the environment, not at the metadata service of the cloud";
            io(ErrorKind::PermissionDenied, "no credentials were found", where_looked).hint(credentials(kind))
        }
        StoreError::Precondition { .. } => changed(),
        _ if text.contains("non-partial response") || is_whole(error, answer) => failed(
            cannot,
            "the server, or a proxy before it, ignores the Range header",
            "copy the file to a local disk first",
        ),
        _ if text.contains("Content-Length") => failed(
            cannot,
            "the server sends no Content-Length, so nobody knows how long the object is",
            "copy the file to a local disk first",
        ),
        _ if answer.status == Some(206) && !has_given_up => failed(
            cannot,
            &format!("the server sent other bytes than were asked for: {said}"),
            "it, or a proxy before it, has a fault: copy the file to a local disk first",
        ),
        _ if root(error).contains("path segment") => failed(
            "cannot list",
            &format!("an object has a name that cannot be read: {}", root(error)),
            "rename it, or pass the URL of each file",
        ),
        _ if is_of_certificate(error) => failed(
            "cannot reach the server",
            &root(error),
            "set SSL_CERT_FILE to a file with the certificate of its authority; for a test, storage={\"allow_invalid_certificates\": True}",
        ),
        // In the words of the HTTP client.
        _ if root(error).contains("URL scheme is not allowed") => {
            io(ErrorKind::InvalidInput, cannot, "the endpoint has no encryption (http, not https)")
                .hint("if that is meant, pass storage={\"allow_http\": True}")
        }
        _ if again(error) == Again::Unreachable => failed(
            "cannot reach the server",
            &root(error),
            "check the name of the host, the endpoint and the network",
        ),
        _ if again(error) == Again::Later => failed(
            cannot,
            &format!("the connection broke: {said}"),
            "check the network and the server, or try again later",
        ),
        _ => io(ErrorKind::Other, cannot, said),
    }
}

/// Whether the certificate of a server was refused. It would be refused again.
fn is_of_certificate(error: &StoreError) -> bool {
    root(error).contains("certificate")
}

/// Whether a server sent all of an object instead of a range.
fn is_whole(error: &StoreError, answer: &Answer) -> bool {
    answer.status == Some(200) && matches!(error, StoreError::NotSupported { .. })
}

fn credentials(kind: Kind) -> &'static str {
    match kind {
        Kind::S3 => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass storage={\"access_key_id\": ..., \"secret_access_key\": ...}; for public data pass storage={\"skip_signature\": True}"
        }
        Kind::Gcs => {
            "set GOOGLE_SERVICE_ACCOUNT, or pass storage={\"service_account\": ...}; for public data pass storage={\"skip_signature\": True}"
        }
        Kind::Azure => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or pass storage={\"account_name\": ..., \"account_key\": ...}; for public data pass storage={\"skip_signature\": True}"
        }
        Kind::Http | Kind::Memory => {
            "write them into the URL, as in https://user:password@host/name, or use a signed URL"
        }
    }
}

/// Whether a store looked for credentials in all places and found none: it asked the metadata service of its cloud last.
fn is_without_credentials(text: &str) -> bool {
    [
        "169.254.169.254",
        "169.254.170.2",
        "metadata.google.internal",
        "latest/api/token",
        "computeMetadata",
        "MissingToken",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// The object is not the one that was opened.
pub fn changed() -> Error {
    Error::format("the object changed after it was opened").hint("open it again").as_change()
}
