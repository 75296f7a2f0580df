//! The HTTP client of a store. It notes what a server answered, adds what a URL says about each request, and follows no
//! redirect to another host unless asked to.

use super::options::Policy;
use super::sending::{self, Sending};
use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderValue, LOCATION};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Redirects of one request that are followed.
const MOST_REDIRECTS: usize = 10;
/// Headers that another host may see. All others may be credentials.
const HARMLESS: [&str; 6] = ["accept", "if-match", "if-none-match", "range", "user-agent", "x-ms-range"];

/// What a server answered to the last request of a task.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status code.
    pub status: Option<u16>,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// Which server it was: scheme, host and port.
    pub origin: Option<Arc<String>>,
    /// The ETag of what was stored.
    pub tag: Option<String>,
}

/// What a task's requests have in common.
struct Scope {
    query: Option<Arc<str>>,
    /// What the requests store, if they store anything.
    sending: Option<Arc<Sending>>,
    answer: RefCell<Answer>,
}

tokio::task_local! {
    static SCOPE: Scope;
}

/// Runs requests, with the query of a URL, and returns also what the server answered to the last of them. `sending`: what
/// they store.
pub async fn with_answer<T>(
    query: Option<Arc<str>>,
    sending: Option<Arc<Sending>>,
    requests: impl Future<Output = T>,
) -> (T, Answer) {
    let scope = Scope { query, sending, answer: RefCell::default() };
    SCOPE
        .scope(scope, async {
            let result = requests.await;
            (result, SCOPE.with(|scope| scope.answer.take()))
        })
        .await
}

/// Makes the clients of stores.
#[derive(Debug)]
pub struct Connector {
    pub policy: Policy,
    /// The address of a web server, as the user wrote it. It may be without encryption (`http://`), and it may have a
    /// user name and a password. None for other stores.
    pub address: Option<String>,
}

fn failed(source: reqwest::Error) -> object_store::Error {
    object_store::Error::Generic { store: "HTTP client", source: Box::new(source) }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.build(options)?.build().map_err(failed)?;
        // The client makes a header of the user name and the password. It does so only for requests of its own.
        let login = self.address.as_ref().and_then(|address| client.get(address).build().ok());
        let login = login.and_then(|request| request.headers().get(AUTHORIZATION).cloned());
        let follows_redirects = self.policy.follow_redirects;
        let sender = client.clone();
        Ok(HttpClient::new(Watched { client: HttpClient::new(client), sender, login, follows_redirects }))
    }
}

impl Connector {
    fn build(&self, options: &ClientOptions) -> object_store::Result<reqwest::ClientBuilder> {
        use ClientConfigKey as Key;
        let text = |key: Key| options.get_config_value(&key);
        let flag = |key: Key| text(key).is_some_and(|value| value == "true");
        let is_plain = self.address.as_ref().is_some_and(|address| address.starts_with("http://"));
        let mut builder = reqwest::Client::builder()
            .user_agent(
                text(Key::UserAgent)
                    .unwrap_or_else(|| concat!("anyrecord/", env!("CARGO_PKG_VERSION")).into()),
            )
            .https_only(!is_plain && !flag(Key::AllowHttp))
            .danger_accept_invalid_certs(flag(Key::AllowInvalidCertificates))
            .connect_timeout(self.policy.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            // Records are compressed by their formats. Another layer would change what a range of bytes means.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .tcp_nodelay(true);
        if let Some(time) = self.policy.timeout {
            builder = builder.timeout(time);
        }
        if let Some(time) = self.policy.pool_idle_timeout {
            builder = builder.pool_idle_timeout(time);
        }
        if let Some(most) = self.policy.pool_max_idle_per_host {
            builder = builder.pool_max_idle_per_host(most);
        }
        if flag(Key::Http2Only) {
            builder = builder.http2_prior_knowledge();
        } else {
            // Large bodies are faster on many connections than as streams of one.
            builder = builder.http1_only();
        }
        if let Some(proxy) = text(Key::ProxyUrl) {
            let mut proxy = reqwest::Proxy::all(proxy).map_err(failed)?;
            if let Some(hosts) = text(Key::ProxyExcludes) {
                proxy = proxy.no_proxy(reqwest::NoProxy::from_string(&hosts));
            }
            builder = builder.proxy(proxy);
        }
        Ok(builder)
    }
}

/// Where a server sent us.
#[derive(Debug)]
pub struct OtherHost(String);

impl std::fmt::Display for OtherHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server redirects to another host: {}", self.0)
    }
}

impl std::error::Error for OtherHost {}

/// Notes what servers answer. Redirects to the host of the first request are followed. Those to another one only if
/// asked for: whoever controls a server must not choose where data comes from.
#[derive(Debug)]
struct Watched {
    client: HttpClient,
    /// The same client, for requests whose progress is watched.
    sender: reqwest::Client,
    login: Option<HeaderValue>,
    follows_redirects: bool,
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = SCOPE.try_with(|scope| scope.query.clone()).ok().flatten();
        if let Some(query) = query {
            let joint = if request.uri().query().is_some() { '&' } else { '?' };
            *request.uri_mut() = format!("{}{joint}{query}", request.uri()).parse().map_err(unusable)?;
        }
        if let Some(login) = &self.login {
            request.headers_mut().insert(AUTHORIZATION, login.clone());
        }
        if let Some(sending) = SCOPE.try_with(|scope| scope.sending.clone()).ok().flatten() {
            sending.prepare(&mut request);
            if sending.is_body_of(&request) {
                let response = sending::send(&self.sender, request, &sending).await;
                let tag =
                    response.as_ref().ok().and_then(|response| response.headers().get(ETAG)?.to_str().ok());
                let answer = Answer { tag: tag.map(str::to_owned), ..answer_of(&response) };
                let _ = SCOPE.try_with(|scope| *scope.answer.borrow_mut() = answer);
                return sending.compared(response?);
            }
        }
        let mut asked = None;
        for _ in 0..=MOST_REDIRECTS {
            let (method, headers) = (request.method().clone(), request.headers().clone());
            let address = Url::parse(&request.uri().to_string()).map_err(unusable)?;
            // The server that was asked first. One that it redirects to may be another one each time.
            let origin = asked.get_or_insert_with(|| Arc::new(address.origin().ascii_serialization()));
            let response = self.client.execute(request).await;
            // Requests outside of a scope are of the store itself, for example for credentials.
            let _ = SCOPE.try_with(|scope| {
                let answer = answer_of(&response);
                let origin = answer.status.map(|_| origin.clone());
                *scope.answer.borrow_mut() = Answer { origin, ..answer };
            });
            let response = response?;
            let target = target_of(&response).filter(|_| method == "GET" || method == "HEAD");
            let Some(target) = target else { return Ok(response) };
            let mut target = address.join(&target).map_err(unusable)?;
            // Neither can fail if there is a host. Another server must not choose who we are.
            let _ = (target.set_username(""), target.set_password(None));
            let is_other = !is_same_host(&address, &target);
            if is_other && !self.follows_redirects {
                let host = &target[..url::Position::BeforePath];
                return Err(HttpError::new(HttpErrorKind::Unknown, OtherHost(host.to_owned())));
            }
            request = HttpRequest::new(HttpRequestBody::empty());
            *request.method_mut() = method;
            *request.uri_mut() = target.as_str().parse().map_err(unusable)?;
            *request.headers_mut() = if is_other { harmless(headers) } else { headers };
        }
        Err(unusable(std::io::Error::other("too many redirects")))
    }
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

fn answer_of(response: &Result<HttpResponse, HttpError>) -> Answer {
    let Ok(response) = response else { return Answer::default() };
    let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    // A server may ask for any time. The retries have their own limit.
    let wait = seconds.map(|seconds: u32| Duration::from_secs(seconds.into()));
    Answer { status: Some(response.status().as_u16()), retry_after: wait, ..Answer::default() }
}

/// Where an answer redirects to.
fn target_of(response: &HttpResponse) -> Option<String> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let target = response.headers().get(LOCATION).filter(|_| is_redirect)?;
    target.to_str().ok().map(str::to_owned)
}

/// Whether a redirect stays at the same server. It may begin to encrypt.
fn is_same_host(from: &Url, to: &Url) -> bool {
    let encrypts =
        from.scheme() == "http" && from.port().is_none() && to.scheme() == "https" && to.port().is_none();
    from.origin() == to.origin() || encrypts && from.host() == to.host()
}

fn harmless(headers: HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, value) in &headers {
        if HARMLESS.contains(&name.as_str()) {
            kept.append(name, value.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_at_a_server_if_scheme_host_and_port_are_the_same() {
        for (from, to, is_same) in [
            ("http://a/x", "http://a/y?z", true),
            ("http://a:80/x", "http://a/y", true),
            ("http://a/x", "https://a/x", true),
            ("https://a/x", "http://a/x", false),
            ("http://a/x", "http://a:81/x", false),
            ("http://a:81/x", "https://a/x", false),
            ("http://a/x", "http://b.a/x", false),
        ] {
            let (from, to) = (Url::parse(from).unwrap(), Url::parse(to).unwrap());
            assert_eq!(is_same_host(&from, &to), is_same, "{from} {to}");
        }
    }

    #[test]
    fn another_host_sees_no_credentials() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "x-amz-security-token", "x-ms-date", "cookie", "range", "if-match"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        let kept = harmless(headers);
        let mut names: Vec<_> = kept.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["if-match", "range"]);
    }
}
