//! Errors of stores, in words that say what to try. They never contain a secret.

use super::client::{Answer, OtherHost};
use crate::error::Error;
use object_store::Error as StoreError;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;
use std::io::ErrorKind;

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
fn tag<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(value, _)| value).filter(|value| value.len() < 300)
}

fn io(kind: ErrorKind, what: &'static str, detail: impl Into<String>) -> Error {
    Error::io(what, std::io::Error::new(kind, detail.into()))
}

/// The error of a store that could not be made.
pub fn of_store(error: &StoreError) -> Error {
    Error::argument(format!("the store cannot be used: {}", root(error)))
}

/// The error of a request.
pub fn of_request(error: &StoreError, answer: &Answer) -> Failed {
    let text = error.to_string();
    let code = tag(&text, "Code").unwrap_or_default();
    if let Some(other) = cause::<OtherHost>(error) {
        let error = io(ErrorKind::Other, "cannot read", other.to_string());
        return Failed::finally(
            error.hint("open the address that it redirects to, or pass storage={\"follow_redirects\": True}"),
        );
    }
    match answer.status {
        Some(429) => return overloaded(429, code),
        Some(503) => return overloaded(503, code),
        Some(status @ (408 | 500 | 502 | 504 | 509 | 520..=530)) => {
            let error = io(
                ErrorKind::Other,
                "cannot read",
                format!("the server answered {status} {code}").trim_end(),
            );
            return Failed::later(error.hint("the server has a problem: try again later"));
        }
        _ => {}
    }
    let is_range = answer.status == Some(416) || matches!(error, StoreError::NotSupported { .. });
    Failed { again: again(error), error: sentence(error, answer, &text, code), is_range }
}

fn overloaded(status: u16, code: &str) -> Failed {
    let error =
        io(ErrorKind::Other, "cannot read", format!("the server answered {status} {code}").trim_end());
    let hint = "it is overloaded: use fewer processes, or storage={\"max_requests\": 8}";
    Failed { error: error.hint(hint), again: Again::Overloaded, is_range: false }
}

/// Whether an error without an answer of the server may go away.
fn again(error: &StoreError) -> Again {
    match cause::<HttpError>(error).map(HttpError::kind) {
        Some(HttpErrorKind::Connect) => Again::Unreachable,
        Some(HttpErrorKind::Request | HttpErrorKind::Timeout | HttpErrorKind::Interrupted) => Again::Later,
        // A body that ends early is an error of the decoder.
        Some(HttpErrorKind::Decode) => Again::Later,
        _ => Again::Never,
    }
}

fn sentence(error: &StoreError, answer: &Answer, text: &str, code: &str) -> Error {
    let status = answer.status;
    let message = tag(text, "Message").unwrap_or_default();
    let said = match (status, code) {
        (Some(status), "") => format!("the server answered {status}"),
        (Some(status), code) => format!("the server answered {status} {code}: {message}"),
        (None, _) => root(error),
    };
    let is_region = code == "PermanentRedirect"
        || code == "AuthorizationHeaderMalformed"
        || matches!(status, Some(301 | 307))
        || text.contains("configured region");
    match error {
        _ if is_region => io(ErrorKind::Other, "cannot read", said)
            .hint("the bucket is in another region: pass storage={\"region\": ...} or set AWS_REGION"),
        StoreError::NotFound { .. } if code == "NoSuchBucket" || code == "ContainerNotFound" => {
            io(ErrorKind::NotFound, "there is no such bucket", said).hint("check the name and the account")
        }
        StoreError::NotFound { .. } => io(ErrorKind::NotFound, "there is no such object", said)
            .hint("check the name; a folder needs a / at its end or a pattern"),
        StoreError::PermissionDenied { .. } => io(ErrorKind::PermissionDenied, "access is denied", said)
            .hint("check the credentials and their permissions, and that the object exists"),
        StoreError::Unauthenticated { .. } => io(ErrorKind::PermissionDenied, "credentials are missing or wrong", said)
            .hint("set the variables of the provider, such as AWS_ACCESS_KEY_ID, or pass storage={...}; for public data pass storage={\"skip_signature\": True}"),
        _ if is_without_credentials(text) => {
            io(ErrorKind::PermissionDenied, "no credentials were found", root(error))
                .hint("set the variables of the provider, such as AWS_ACCESS_KEY_ID, or pass storage={...}; for public data pass storage={\"skip_signature\": True}")
        }
        _ if text.contains("non-partial response") => {
            io(ErrorKind::Other, "cannot read", "the server, or a proxy before it, ignores the Range header")
                .hint("copy the file to a local disk first")
        }
        _ if text.contains("HTTP is not allowed") || text.contains("scheme is not allowed") || text.contains("URL scheme") => {
            io(ErrorKind::InvalidInput, "cannot read", root(error)).hint("for a server without encryption pass storage={\"allow_http\": True}")
        }
        StoreError::Precondition { .. } => changed(),
        _ if again(error) == Again::Unreachable => io(ErrorKind::Other, "cannot reach the server", root(error))
            .hint("check the name of the host, the endpoint and the network"),
        _ => io(ErrorKind::Other, "cannot read", said),
    }
}

fn is_without_credentials(text: &str) -> bool {
    ["169.254.169.254", "169.254.170.2", "metadata.google.internal", "MissingToken", "missing credentials"]
        .iter()
        .any(|part| text.contains(part))
}

/// The object is not the one that was opened.
pub fn changed() -> Error {
    Error::format("the object changed after it was opened").hint("open it again").as_change()
}
