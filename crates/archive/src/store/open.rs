//! The store at a URL: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or
//! `file:///DIRECTORY`. Credentials come from the environment, from files that it names, or from
//! the role of the instance, and never from the URL.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use super::Store;
use super::bucket::Bucket;
use super::credentials::CredentialsFile;
use super::http::Connector;
use super::reason::StoreReason;

/// How long a request may take: the largest ones, of 64 MiB, have as long as
/// [`create_timeout`](super::bucket::create_timeout) gives them.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(140);

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no store at a URL.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is none, or not one of an archive.
    #[error("cannot open the archive {url}: {reason}")]
    Url {
        /// The URL as given, unless it has a password.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The URL of the endpoint is wrong, or the archive has no endpoint.
    #[error("cannot use the endpoint {endpoint}: {reason}")]
    Endpoint {
        /// The endpoint as given.
        endpoint: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The directory cannot be created or opened.
    #[error("cannot open the archive in {}", path.display())]
    Directory {
        /// The directory of the URL.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The settings of the store contradict each other, or the client cannot be made of them.
    #[error("cannot open the archive {url}")]
    Settings {
        /// The URL as given.
        url: String,
        /// What the library says.
        source: StoreReason,
    },
}

/// A store in the memory of this process, which is empty, for tests.
#[must_use]
pub fn in_memory() -> Arc<dyn Store> {
    Arc::new(Bucket::new(Arc::new(InMemory::new()), Path::default()))
}

/// Opens the store at a URL. A directory is created if it is not there; nothing is asked of a
/// bucket. `endpoint` is the URL of a server with the interface of the scheme, instead of that in
/// the environment or of the provider's own.
///
/// # Errors
/// If the URL or the settings in the environment are wrong, or the directory cannot be created.
pub fn open(url: &str, endpoint: Option<&str>) -> Result<Arc<dyn Store>, OpenError> {
    let parsed = parse(url)?;
    let endpoint = endpoint.map(check_endpoint).transpose()?;
    let bucket = match parsed {
        Location::Directory(path) => {
            if let Some(endpoint) = endpoint {
                return Err(OpenError::Endpoint {
                    endpoint: endpoint.to_owned(),
                    reason: "an archive in a directory has none",
                });
            }
            open_directory(path)?
        }
        Location::Bucket {
            provider,
            name,
            prefix,
        } => {
            let objects = match provider {
                Provider::S3 => open_s3(AmazonS3Builder::from_env(), &name, endpoint)?,
                Provider::Google => open_google(&name, endpoint),
                Provider::Azure => open_azure(&name, endpoint)?,
            };
            let objects = objects.map_err(|error| OpenError::Settings {
                url: url.to_owned(),
                source: StoreReason::new(&error.to_string()),
            })?;
            Bucket::new(objects, prefix)
        }
    };
    Ok(Arc::new(bucket))
}

/// Opens the top of a bucket of S3 with this pair of keys, whatever the environment says, for
/// tests.
///
/// # Errors
/// If the endpoint is wrong.
#[cfg(any(test, feature = "test-support"))]
pub fn open_with_keys(
    bucket: &str,
    endpoint: &str,
    (key, secret): (&str, &str),
) -> Result<Arc<dyn Store>, OpenError> {
    let builder = AmazonS3Builder::new()
        .with_access_key_id(key)
        .with_secret_access_key(secret);
    let opened = open_s3(builder, bucket, Some(check_endpoint(endpoint)?))?;
    let objects = opened.map_err(|error| OpenError::Settings {
        url: bucket.to_owned(),
        source: StoreReason::new(&error.to_string()),
    })?;
    Ok(Arc::new(Bucket::new(objects, Path::default())))
}

/// Whose interface a bucket has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provider {
    S3,
    Google,
    Azure,
}

/// What a URL names.
#[derive(Debug, PartialEq, Eq)]
enum Location {
    Directory(PathBuf),
    Bucket {
        provider: Provider,
        name: String,
        prefix: Path,
    },
}

fn parse(text: &str) -> Result<Location, OpenError> {
    let fail = |reason| OpenError::Url {
        url: text.to_owned(),
        reason,
    };
    let url = Url::parse(text)
        .map_err(|_| fail("not a URL; give s3://BUCKET/PREFIX or file:///DIRECTORY"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(OpenError::Url {
            url: format!("{}://...", url.scheme()),
            reason: "the URL has credentials; give them in the environment or in a file",
        });
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(fail("a ? or # in the URL has no meaning"));
    }
    let provider = match url.scheme() {
        "file" => {
            let path = url.to_file_path();
            return path
                .map(Location::Directory)
                .map_err(|()| fail("give an absolute path: file:///DIRECTORY"));
        }
        "s3" => Provider::S3,
        "gs" => Provider::Google,
        "az" => Provider::Azure,
        _ => return Err(fail("the scheme is none of s3, gs, az, file")),
    };
    if url.port().is_some() {
        return Err(fail(
            "a bucket has no port; give the server as the endpoint",
        ));
    }
    let Some(name) = url.host_str().filter(|name| !name.is_empty()) else {
        return Err(fail("the name of the bucket is missing"));
    };
    let prefix = Path::from_url_path(url.path())
        .map_err(|_| fail("the prefix has an empty part, or a character that names cannot have"))?;
    Ok(Location::Bucket {
        provider,
        name: name.to_owned(),
        prefix,
    })
}

fn check_endpoint(endpoint: &str) -> Result<&str, OpenError> {
    let fail = |reason| OpenError::Endpoint {
        endpoint: endpoint.to_owned(),
        reason,
    };
    let url = Url::parse(endpoint).map_err(|_| fail("not a URL; give https://HOST[:PORT]"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(fail("the scheme is neither https nor http"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(OpenError::Endpoint {
            endpoint: format!("{}://...", url.scheme()),
            reason: "the URL has credentials; give them in the environment or in a file",
        });
    }
    Ok(endpoint.trim_end_matches('/'))
}

fn open_directory(path: PathBuf) -> Result<Bucket, OpenError> {
    let opened = fs::create_dir_all(&path).and_then(|()| {
        let files = LocalFileSystem::new_with_prefix(&path);
        files.map_err(|error| io::Error::other(error.to_string()))
    });
    match opened {
        Ok(files) => Ok(Bucket::of_files(files.with_fsync(true))),
        Err(source) => Err(OpenError::Directory { path, source }),
    }
}

/// A store, or the error of the library about its settings.
type Opened = object_store::Result<Arc<dyn ObjectStore>>;

fn open_s3(
    mut builder: AmazonS3Builder,
    bucket: &str,
    endpoint: Option<&str>,
) -> Result<Opened, OpenError> {
    use AmazonS3ConfigKey as Key;
    let setting = |builder: &AmazonS3Builder, key| builder.get_config_value(&key);
    let own = setting(&builder, Key::S3Endpoint).or_else(|| setting(&builder, Key::Endpoint));
    let endpoint = endpoint.map(str::to_owned).or(own);
    if let Some(endpoint) = &endpoint {
        let endpoint = check_endpoint(endpoint)?;
        builder = builder.with_config(Key::S3Endpoint, endpoint);
    }
    let is_set = |key| setting(&builder, key).is_some();
    let has_keys = is_set(Key::AccessKeyId) || is_set(Key::SecretAccessKey);
    let has_identity = is_set(Key::WebIdentityTokenFile) && is_set(Key::RoleArn);
    if !has_keys
        && !has_identity
        && let Some(file) = CredentialsFile::from_environment()
    {
        builder = builder.with_credentials(Arc::new(file));
    }
    let builder = builder
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(no_retries())
        .with_client_options(client_options(endpoint.as_deref()))
        .with_http_connector(Connector);
    Ok(builder.build().map(|store| Arc::new(store) as _))
}

fn open_google(bucket: &str, endpoint: Option<&str>) -> Opened {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    if let Some(endpoint) = endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let builder = builder
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_client_options(client_options(endpoint))
        .with_http_connector(Connector);
    builder.build().map(|store| Arc::new(store) as _)
}

fn open_azure(container: &str, endpoint: Option<&str>) -> Result<Opened, OpenError> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    let own = builder.get_config_value(&AzureConfigKey::Endpoint);
    let endpoint = endpoint.map(str::to_owned).or(own);
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(check_endpoint(endpoint)?.to_owned());
    }
    let builder = builder
        .with_container_name(container)
        .with_retry(no_retries())
        .with_client_options(client_options(endpoint.as_deref()))
        .with_http_connector(Connector);
    Ok(builder.build().map(|store| Arc::new(store) as _))
}

/// Failed calls are repeated by their callers, who know what an unknown outcome means to them.
fn no_retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: REQUEST_TIMEOUT,
    }
}

fn client_options(endpoint: Option<&str>) -> ClientOptions {
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new()
        .with_timeout(REQUEST_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(is_plain)
        // A host without certificates can use a server without them.
        .with_no_system_certificates(is_plain)
}

#[cfg(test)]
mod tests {
    use super::super::{StoreErrorKind, check_conformance};
    use super::*;

    #[tokio::test]
    async fn stores_in_memory_and_in_a_directory_do_what_a_store_does() {
        check_conformance(&*in_memory()).await;
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}/a%20b/c", directory.path().display());
        check_conformance(&*open(&url, None).unwrap()).await;
        let days = directory.path().join("a b/c/days");
        assert!(days.join("2026-11-27/host%2Fa%25b").is_dir());
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = open(&format!("file://{}", file.display()), None).unwrap_err();
        assert!(error.to_string().contains("/file"), "{error}");
        // A name that is a directory, or below a file, is none for an object.
        let store = open(&format!("file://{}", directory.path().display()), None).unwrap();
        store.create("a/b", "".into()).await.unwrap();
        for name in ["a", "a/b/c"] {
            let error = store.create(name, "".into()).await.unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[tokio::test]
    async fn what_a_crash_leaves_is_no_object() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(&format!("file://{}", directory.path().display()), None).unwrap();
        store.create("log/a/1", "one".into()).await.unwrap();
        // The name under which `object_store` writes a file before it gets its own.
        fs::write(directory.path().join("log/a/2#1"), "half").unwrap();
        let listed = store.list("log/", None, 10).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        store.create("log/a/2", "two".into()).await.unwrap();
        assert_eq!(store.get("log/a/2", 10).await.unwrap(), "two");
        let missing = store.get("log/a/2#1", 10).await.unwrap_err();
        assert_eq!(missing.kind, StoreErrorKind::Other);
    }

    #[test]
    fn a_url_names_a_bucket_and_a_prefix_or_a_directory() {
        let bucket = |provider, name: &str, prefix: &str| Location::Bucket {
            provider,
            name: name.to_owned(),
            prefix: Path::from(prefix),
        };
        for (url, want) in [
            ("s3://traces", bucket(Provider::S3, "traces", "")),
            ("s3://traces/", bucket(Provider::S3, "traces", "")),
            (
                "s3://my.traces/a/b/",
                bucket(Provider::S3, "my.traces", "a/b"),
            ),
            ("gs://traces/a", bucket(Provider::Google, "traces", "a")),
            ("az://traces/a", bucket(Provider::Azure, "traces", "a")),
            (
                "file:///srv/traces",
                Location::Directory("/srv/traces".into()),
            ),
        ] {
            assert_eq!(parse(url).unwrap(), want, "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_refused_and_says_why() {
        for (url, want) in [
            ("", "not a URL"),
            ("/srv/traces", "not a URL"),
            ("traces", "not a URL"),
            ("s3:", "the name of the bucket is missing"),
            ("s3://", "the name of the bucket is missing"),
            ("s3:///a", "the name of the bucket is missing"),
            ("s3://traces:9000/a", "a bucket has no port"),
            ("s3://traces/a?b", "a ? or #"),
            ("s3://traces/a//b", "the prefix has an empty part"),
            ("http://host/traces", "the scheme is none of"),
            ("file://srv/traces", "give an absolute path"),
            ("s3://KEY:SECRET@traces/a", "the URL has credentials"),
        ] {
            let error = open(url, None).unwrap_err().to_string();
            assert!(error.contains(want), "{url}: {error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
        for (url, endpoint, want) in [
            ("s3://traces", "host:9000", "neither https nor http"),
            ("s3://traces", "//host", "not a URL"),
            ("s3://traces", "https://a:SECRET@host", "has credentials"),
            ("file:///srv", "https://host", "an archive in a directory"),
        ] {
            let error = open(url, Some(endpoint)).unwrap_err().to_string();
            assert!(error.contains(want), "{url} {endpoint}: {error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }
}
