//! The HTTP client of a store. It notes what a server answered, and follows no redirect to another host unless asked to.

use async_trait::async_trait;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use std::cell::RefCell;
use std::time::Duration;

/// What a server answered to the last request of a task.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status code.
    pub status: Option<u16>,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

tokio::task_local! {
    static ANSWER: RefCell<Answer>;
}

/// Runs requests, and returns also what the server answered to the last of them.
pub async fn with_answer<T>(requests: impl Future<Output = T>) -> (T, Answer) {
    ANSWER
        .scope(RefCell::default(), async {
            let result = requests.await;
            (result, ANSWER.with(RefCell::take))
        })
        .await
}

/// Makes the clients of stores.
#[derive(Debug)]
pub struct Connector {
    pub follow_redirects: bool,
    /// The address of a web server, as the user wrote it. It may be without encryption (`http://`), and it may have a
    /// user name and a password. None for other stores.
    pub address: Option<String>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source: reqwest::Error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(source),
        };
        let mut client = self.build(options)?.build().map_err(failed)?;
        // The client makes a header of the user name and the password. It does so only for requests of its own.
        let login = self.address.as_ref().and_then(|address| client.get(address).build().ok());
        let login = login.and_then(|request| request.headers().get(AUTHORIZATION).cloned());
        if let Some(login) = login {
            // These headers are not sent to another host.
            let headers = HeaderMap::from_iter([(AUTHORIZATION, login)]);
            client = self.build(options)?.default_headers(headers).build().map_err(failed)?;
        }
        Ok(HttpClient::new(Watched(HttpClient::new(client))))
    }
}

impl Connector {
    fn build(&self, options: &ClientOptions) -> object_store::Result<reqwest::ClientBuilder> {
        use ClientConfigKey as Key;
        let text = |key: Key| options.get_config_value(&key);
        let flag = |key: Key| text(key).is_some_and(|value| value == "true" || value == "1");
        let time = |key: Key| text(key).and_then(|value| super::options::duration("", &value).ok());
        let failed = |source: reqwest::Error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(source),
        };
        let is_plain = self.address.as_ref().is_some_and(|address| address.starts_with("http://"));
        let mut builder = reqwest::Client::builder()
            .user_agent(
                text(Key::UserAgent)
                    .unwrap_or_else(|| concat!("anyrecord/", env!("CARGO_PKG_VERSION")).into()),
            )
            .https_only(!is_plain && !flag(Key::AllowHttp))
            .danger_accept_invalid_certs(flag(Key::AllowInvalidCertificates))
            .connect_timeout(time(Key::ConnectTimeout).unwrap_or(Duration::from_secs(5)))
            .redirect(redirects(self.follow_redirects))
            // Records are compressed by their formats. Another layer would change what a range of bytes means.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .tcp_nodelay(true);
        if let Some(time) = time(Key::PoolIdleTimeout) {
            builder = builder.pool_idle_timeout(time);
        }
        if let Some(most) = text(Key::PoolMaxIdlePerHost).and_then(|value| value.parse().ok()) {
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
pub struct OtherHost(pub String);

impl std::fmt::Display for OtherHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server redirects to another host: {}", self.0)
    }
}

impl std::error::Error for OtherHost {}

/// Redirects to the host of the first request are followed. Those to another one only if asked for: whoever controls a
/// server must not choose where data comes from.
fn redirects(follow: bool) -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(move |attempt| {
        let host = attempt.url().host_str().unwrap_or_default().to_owned();
        let is_same = attempt.previous().first().is_some_and(|first| first.host_str() == Some(&*host));
        if attempt.previous().len() > 10 {
            attempt.error("too many redirects")
        } else if is_same || follow {
            attempt.follow()
        } else {
            attempt.error(OtherHost(host))
        }
    })
}

/// Notes what servers answer.
#[derive(Debug)]
struct Watched(HttpClient);

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await;
        // Requests outside of a scope are of the store itself, for example for credentials.
        let _ = ANSWER.try_with(|answer| *answer.borrow_mut() = answer_of(&response));
        response
    }
}

fn answer_of(response: &Result<HttpResponse, HttpError>) -> Answer {
    let Ok(response) = response else { return Answer::default() };
    let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    Answer { status: Some(response.status().as_u16()), retry_after: seconds.map(Duration::from_secs) }
}
