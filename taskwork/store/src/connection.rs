//! Connections to stores that are not folders.

use std::{io, sync::Arc, time::Duration};

use object_store::ObjectStore;
use url::Url;

/// The time after which a read from a server that sends nothing fails.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The time limit of a read. Large objects take long.
#[cfg(feature = "s3")]
const READ_MAX: &str = "1day";

/// The time limit of a write: of one object, or of one part of a large one.
#[cfg(feature = "s3")]
const WRITE_MAX: &str = "1h";

/// Opens a bucket or a web server. Failed requests are repeated for the time `retry`.
///
/// The client counts the time `silence_max` from the start of a request, before it has sent the body. So connections for
/// writes have no such limit.
#[cfg(feature = "s3")]
pub(crate) fn connect(
    url: &Url,
    retry: Duration,
    silence_max: Option<Duration>,
) -> io::Result<Arc<dyn ObjectStore>> {
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
            let request_max = if silence_max.is_some() { READ_MAX } else { WRITE_MAX };
            let mut builder = builder.with_config($key(ClientConfigKey::Timeout), request_max);
            if let Some(silence_max) = silence_max {
                let silence_max = format!("{}ms", silence_max.as_millis());
                builder = builder.with_config($key(ClientConfigKey::ReadTimeout), silence_max);
            }
            Arc::new(builder.build()?)
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
pub(crate) fn connect(url: &Url, _: Duration, _: Option<Duration>) -> io::Result<Arc<dyn ObjectStore>> {
    Err(missing(url))
}

fn missing(url: &Url) -> io::Error {
    let reason = format!(
        "this program is built without {}://: build it with its feature for stores (`s3` of routines, `stores` of workflows)",
        url.scheme()
    );
    io::Error::new(io::ErrorKind::Unsupported, reason)
}
