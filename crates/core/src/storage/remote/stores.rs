//! Stores. Each belongs to one process: a forked child that used a store of its parent would wait forever. It must not
//! free one either: parent and child share what the system knows about its connections. So stores are never freed.

use super::client::Connector;
use super::gate::Gate;
use super::options::{Policy, StorageOptions};
use super::url::{Kind, RemoteUrl};
use crate::error::{Error, Result};
use crate::process::PerProcess;
use arc_swap::ArcSwapOption;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

/// A store, and what its requests share.
pub struct Store {
    /// What kind of store it is.
    pub kind: Kind,
    /// The store.
    pub objects: Arc<dyn ObjectStore>,
    /// The same store, if it lists page by page.
    pub pages: Option<Arc<dyn PaginatedListStore>>,
    /// The same store, if it takes objects part by part.
    pub parts: Option<Arc<dyn MultipartStore>>,
    /// Bounds the requests in flight.
    pub gate: Gate,
    /// How requests are made.
    pub policy: Policy,
    /// Whether the server has answered before. If not, its name may be wrong.
    pub has_answered: AtomicBool,
    /// The server that answered: scheme, host and port.
    pub origin: ArcSwapOption<String>,
}

/// What makes a store: where it is, its options, and the environment.
type Key = (String, StorageOptions, u64);
type Known = HashMap<Key, &'static Store>;

/// What the names of variables begin with that stores and their HTTP clients read.
const VARIABLES: [&str; 10] = [
    "AWS_",
    "GOOGLE_",
    "AZURE_",
    "MSI_",
    "IDENTITY_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_",
];

static STORES: LazyLock<PerProcess<Known>> = LazyLock::new(PerProcess::default);

/// Call this before threads are started, so that no fork finds the lock of an initialisation held.
pub fn prepare() {
    LazyLock::force(&STORES);
    // Fails only if it was called before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The store of a URL in this process.
pub fn of(url: &RemoteUrl, options: &StorageOptions) -> Result<&'static Store> {
    let key = (url.base.clone(), options.clone(), environment());
    if let Some(store) = STORES.with(|stores| stores.get(&key).copied()) {
        return Ok(store);
    }
    let Built { objects, pages, parts } = build(url, options).map_err(|error| error.in_file(url.shown()))?;
    let mut policy = options.policy.clone();
    // The tags of a directory bucket of S3 are no checksums.
    policy.check_uploads &= !url.base.ends_with("--x-s3");
    let gate = Gate::new(policy.most_requests(url.kind));
    let (has_answered, origin) = (AtomicBool::new(false), ArcSwapOption::const_empty());
    let store = Store { kind: url.kind, objects, pages, parts, gate, policy, has_answered, origin };
    let store: &'static Store = Box::leak(Box::new(store));
    // If another thread was faster, its store is used.
    Ok(STORES.with(|stores| *stores.entry(key).or_insert(store)))
}

/// A number that is another one if credentials in the environment are.
fn environment() -> u64 {
    let is_read = |name: &OsStr| {
        let name = name.to_string_lossy().to_ascii_uppercase();
        VARIABLES.iter().any(|begin| name.starts_with(begin))
    };
    let mut read: Vec<_> = std::env::vars_os().filter(|(name, _)| is_read(name)).collect();
    read.sort();
    let mut hasher = DefaultHasher::new();
    read.hash(&mut hasher);
    hasher.finish()
}

/// A store, and how its listings are asked for page by page and objects are stored part by part, if it can do that.
struct Built {
    objects: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    parts: Option<Arc<dyn MultipartStore>>,
}

fn build(url: &RemoteUrl, options: &StorageOptions) -> Result<Built> {
    // We send requests again ourselves: we count them, and send fewer if the server is overloaded.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let address = (url.kind == Kind::Http).then(|| url.base.clone());
    let connector = Connector { policy: options.policy.clone(), address };
    let base = format!("{}/", url.base.trim_end_matches('/'));
    let built = match url.kind {
        Kind::Memory => {
            no_options(options)?;
            // The same objects for everyone, however requests are made.
            let default = StorageOptions::default();
            return match *options == default {
                true => {
                    let store = Arc::new(InMemory::new());
                    Ok(Built { objects: store.clone(), pages: None, parts: Some(store) })
                }
                false => {
                    let store = of(url, &default)?;
                    Ok(Built { objects: store.objects.clone(), pages: None, parts: store.parts.clone() })
                }
            };
        }
        Kind::S3 => {
            let builder = AmazonS3Builder::from_env().with_url(base).with_retry(retry);
            let builder = configure(builder, options, "aws_", |builder, key: AmazonS3ConfigKey, value| {
                builder.with_config(key, value)
            })?;
            builder.with_http_connector(connector).build().map(|store| cloud(Arc::new(store)))
        }
        Kind::Gcs => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(base).with_retry(retry);
            let builder = configure(builder, options, "google_", |builder, key: GoogleConfigKey, value| {
                builder.with_config(key, value)
            })?;
            builder.with_http_connector(connector).build().map(|store| cloud(Arc::new(store)))
        }
        Kind::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(base).with_retry(retry);
            let builder =
                configure(builder, options, "azure_storage_", |builder, key: AzureConfigKey, value| {
                    builder.with_config(key, value)
                })?;
            builder.with_http_connector(connector).build().map(|store| cloud(Arc::new(store)))
        }
        Kind::Http => {
            let builder = HttpBuilder::new().with_url(url.base_without_login()).with_retry(retry);
            let builder = configure(builder, options, "", |builder, key: ClientConfigKey, value| {
                builder.with_config(key, value)
            })?;
            let built = builder.with_http_connector(connector).build();
            built.map(|store| Built { objects: Arc::new(store), pages: None, parts: None })
        }
    };
    built.map_err(|error| super::failure::of_store(&error))
}

fn cloud<S: ObjectStore + PaginatedListStore + MultipartStore>(store: Arc<S>) -> Built {
    Built { objects: store.clone(), pages: Some(store.clone()), parts: Some(store) }
}

fn no_options(options: &StorageOptions) -> Result<()> {
    match options.store.keys().next() {
        Some(name) => Err(unknown(name)),
        None => Ok(()),
    }
}

/// Sets the options of a store. Names are accepted with the prefix of the store and without.
fn configure<B, K: std::str::FromStr>(
    mut builder: B,
    options: &StorageOptions,
    prefix: &str,
    set: impl Fn(B, K, String) -> B,
) -> Result<B> {
    for (name, value) in &options.store {
        let key = name.parse().or_else(|_| format!("{prefix}{name}").parse());
        builder = set(builder, key.map_err(|_| unknown(name))?, value.clone());
    }
    Ok(builder)
}

fn unknown(name: &str) -> Error {
    Error::argument(format!("there is no storage option {name:?} for this store"))
}
