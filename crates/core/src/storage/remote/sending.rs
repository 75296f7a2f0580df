//! Requests that store something. Their progress is watched, and the answer of the store is compared with what was sent.

use super::checksums;
use super::client::Answer;
use super::url::Kind;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::PutPayload;
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse};
use reqwest::header::{AUTHORIZATION, HeaderValue, IF_NONE_MATCH};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use url::Url;

/// Bytes of a body are passed on in pieces of this size, so that their progress can be seen.
const PIECE: usize = 64 << 10;

/// What a request stores, and how.
#[derive(Debug)]
pub struct Sending {
    kind: Kind,
    /// The bytes of an object or of a part of it. None: the request only says what to do with them.
    pub payload: Option<PutPayload>,
    /// Whether the request shall fail if the object exists. Only for requests of which the store does not say so itself.
    only_new: bool,
    /// Whether a checksum in the answer is compared.
    is_checked: bool,
    /// Bytes that were passed on to the connection, with all tries.
    passed: AtomicU64,
    /// Whether the bytes are visible as soon as they are stored. If other bytes arrived, they have to be removed.
    is_visible: bool,
    /// Whether the last answer had a checksum of the bytes, which was the right one.
    was_compared: AtomicBool,
}

impl Sending {
    /// Bytes that are stored.
    pub fn bytes(kind: Kind, bytes: &Bytes, is_checked: bool) -> Self {
        let pieces = (0..bytes.len()).step_by(PIECE).map(|at| bytes.slice(at..bytes.len().min(at + PIECE)));
        Sending { payload: Some(pieces.collect()), is_checked, ..Sending::command(kind) }
    }

    /// A request about bytes that were stored before.
    pub fn command(kind: Kind) -> Self {
        Sending {
            kind,
            payload: None,
            only_new: false,
            is_checked: false,
            passed: AtomicU64::new(0),
            is_visible: false,
            was_compared: AtomicBool::new(false),
        }
    }

    /// The same, with the condition that there is no such object.
    #[must_use]
    pub fn only_new(self, only_new: bool) -> Self {
        Sending { only_new, ..self }
    }

    /// The same, of bytes that are an object by themselves.
    #[must_use]
    pub fn visible(self) -> Self {
        Sending { is_visible: true, ..self }
    }

    /// Whether an answer says that an object was stored, though the request has failed: it has other bytes.
    pub fn has_stored_other_bytes(&self, answer: &Answer) -> bool {
        self.is_visible && answer.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// The bytes that are stored.
    pub fn payload(&self) -> PutPayload {
        self.payload.clone().unwrap_or_default()
    }

    /// Adds the condition to a request, if it is one that stores an object.
    pub fn prepare(&self, request: &mut HttpRequest) {
        // The signature with an account key of Azure covers this header.
        let is_sealed = request
            .headers()
            .get(AUTHORIZATION)
            .is_some_and(|value| value.as_bytes().starts_with(b"SharedKey"));
        if self.only_new && (request.method() == "PUT" || request.method() == "POST") && !is_sealed {
            request.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
    }

    /// Whether this is the request that sends the bytes.
    pub fn is_body_of(&self, request: &HttpRequest) -> bool {
        let length = self.payload.as_ref().map(PutPayload::content_length);
        request.method() == "PUT" && length == Some(request.body().content_length())
    }

    /// Waits for an answer as long as bytes are passed on. None if there is no progress for so long.
    pub async fn progress<T>(&self, patience: Duration, request: impl Future<Output = T>) -> Option<T> {
        let mut request = std::pin::pin!(request);
        loop {
            let before = self.passed.load(Relaxed);
            match tokio::time::timeout(patience, &mut request).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.passed.load(Relaxed) == before => return None,
                Err(_) => {}
            }
        }
    }

    /// An answer, if it does not say that other bytes arrived.
    pub fn compared(&self, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        if let Some(payload) =
            self.payload.as_ref().filter(|_| self.is_checked && answer.status().is_success())
        {
            let was_compared = checksums::compare(self.kind, answer.headers(), payload.as_ref())
                .map_err(|which| HttpError::new(HttpErrorKind::Interrupted, Garbled(which)))?;
            self.was_compared.store(was_compared, Relaxed);
        }
        Ok(answer)
    }

    /// Whether the store has told a checksum of the bytes, and it was the right one. Only after the request succeeded.
    pub fn was_compared(&self) -> bool {
        self.was_compared.load(Relaxed)
    }
}

/// Other bytes arrived than were sent.
#[derive(Debug)]
pub struct Garbled(&'static str);

impl std::fmt::Display for Garbled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "other bytes arrived at the server than were sent: the {} of its answer is another one",
            self.0
        )
    }
}

impl std::error::Error for Garbled {}

/// Sends a request with the bytes, and reads its whole answer.
pub async fn send(
    client: &reqwest::Client,
    request: HttpRequest,
    sending: &Arc<Sending>,
) -> Result<HttpResponse, HttpError> {
    let unusable = |error| HttpError::new(HttpErrorKind::Unknown, error);
    let (parts, _) = request.into_parts();
    let url = Url::parse(&parts.uri.to_string()).map_err(unusable)?;
    let mut request = reqwest::Request::new(parts.method, url);
    *request.headers_mut() = parts.headers;
    let (sent, pieces) = (sending.clone(), futures_util::stream::iter(sending.payload()));
    *request.body_mut() = Some(reqwest::Body::wrap_stream(pieces.map(move |piece: Bytes| {
        sent.passed.fetch_add(piece.len() as u64, Relaxed);
        Ok::<_, std::io::Error>(piece)
    })));
    let answer: reqwest::Response = client.execute(request).await.map_err(failed)?;
    let (status, headers, version) = (answer.status(), answer.headers().clone(), answer.version());
    let body = answer.bytes().await.map_err(failed)?;
    let mut answer = HttpResponse::new(body.into());
    (*answer.status_mut(), *answer.headers_mut(), *answer.version_mut()) = (status, headers, version);
    Ok(answer)
}

fn failed(error: reqwest::Error) -> HttpError {
    let kind = match () {
        () if error.is_connect() => HttpErrorKind::Connect,
        () if error.is_timeout() => HttpErrorKind::Timeout,
        () if error.is_builder() || error.is_redirect() => HttpErrorKind::Unknown,
        // Whatever broke, the request can be sent again.
        () => HttpErrorKind::Interrupted,
    };
    HttpError::new(kind, error.without_url())
}
