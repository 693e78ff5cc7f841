//! Connections to stores that are not folders.

use std::{io, sync::Arc, time::Duration};

use object_store::ObjectStore;
use url::Url;

/// The time after which a server that sends nothing is not waited for.
#[cfg(feature = "s3")]
const SILENCE_MAX: &str = "30s";

/// The time limit of a request. Large objects take long.
#[cfg(feature = "s3")]
const REQUEST_MAX: &str = "1day";

/// Opens a bucket or a web server. Failed requests are repeated for the time `retry`.
#[cfg(feature = "s3")]
pub(crate) fn connect(url: &Url, retry: Duration) -> io::Result<Arc<dyn ObjectStore>> {
    use object_store::{
        ClientConfigKey, RetryConfig,
        aws::{AmazonS3Builder, AmazonS3ConfigKey},
    };

    // The number of repetitions is not the limit.
    let retry = RetryConfig { retry_timeout: retry, max_retries: usize::MAX, ..RetryConfig::default() };

    /// Builds a store with the time limits.
    macro_rules! built {
        ($builder:expr, $url:expr, $key:expr) => {{
            let builder = $builder.with_url($url).with_retry(retry);
            let builder = builder.with_config($key(ClientConfigKey::Timeout), REQUEST_MAX);
            Arc::new(builder.with_config($key(ClientConfigKey::ReadTimeout), SILENCE_MAX).build()?)
        }};
    }

    // Fails if this process has a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store: Arc<dyn ObjectStore> = match url.scheme() {
        "s3" => built!(AmazonS3Builder::from_env(), url.as_str(), AmazonS3ConfigKey::Client),
        #[cfg(feature = "cloud")]
        "gs" => {
            use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
            built!(GoogleCloudStorageBuilder::from_env(), url.as_str(), GoogleConfigKey::Client)
        }
        #[cfg(feature = "cloud")]
        "az" => {
            use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
            built!(MicrosoftAzureBuilder::from_env(), url.as_str(), AzureConfigKey::Client)
        }
        #[cfg(feature = "cloud")]
        "http" | "https" => {
            use object_store::http::HttpBuilder;
            let server = &url[..url::Position::BeforePath];
            let builder = HttpBuilder::new().with_config(ClientConfigKey::AllowHttp, "true");
            built!(builder, server, std::convert::identity)
        }
        _ => return Err(missing(url)),
    };
    Ok(store)
}

/// Refuses all stores that are not folders.
#[cfg(not(feature = "s3"))]
pub(crate) fn connect(url: &Url, _: Duration) -> io::Result<Arc<dyn ObjectStore>> {
    Err(missing(url))
}

fn missing(url: &Url) -> io::Error {
    let reason = format!(
        "this program is built without {}://: build it with its feature for stores (`s3` of routines, `stores` of workflows)",
        url.scheme()
    );
    io::Error::new(io::ErrorKind::Unsupported, reason)
}
