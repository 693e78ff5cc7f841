//! The metadata services of three clouds, which announce that a machine will be taken away:
//!
//! - AWS: <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html>
//! - Google: <https://cloud.google.com/compute/docs/instances/create-use-preemptible>
//! - Azure: <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events>
//!
//! They are polled: a request that blocks until something changes could not be distinguished from a service that does
//! not answer.

use std::{env, time::Duration};

use tokio::time::{self, Instant};

use super::{
    Notice,
    answer::{self, Going},
    metadata::{Answer, Service, Trouble},
    policy::Clock,
};

/// A cloud, and the cached state of its service.
#[derive(Debug)]
pub(super) struct Cloud {
    kind: Kind,
    every: Duration,
}

#[derive(Debug)]
enum Kind {
    Aws { token: Option<String> },
    Gcp,
    Azure { machine: Option<String> },
}

/// The address of the metadata service of all three clouds.
const LINK_LOCAL: &str = "169.254.169.254";

/// The requested lifetime of an AWS token, in seconds.
const TOKEN_TTL_S: &str = "21600";

const AWS_TOKEN: &str = "/latest/api/token";
const AWS_ACTION: &str = "/latest/meta-data/spot/instance-action";
const GCP_PREEMPTED: &str = "/computeMetadata/v1/instance/preempted";
const AZURE_NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const AZURE_EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";

impl Cloud {
    pub(super) fn aws() -> Self {
        Self { kind: Kind::Aws { token: None }, every: Duration::from_secs(2) }
    }

    pub(super) fn gcp() -> Self {
        Self { kind: Kind::Gcp, every: Duration::from_secs(1) }
    }

    pub(super) fn azure() -> Self {
        Self { kind: Kind::Azure { machine: None }, every: Duration::from_secs(1) }
    }

    #[cfg(test)]
    pub(super) fn every(self, every: Duration) -> Self {
        Self { every, ..self }
    }

    /// Returns the host and port of the service. It can be set by the same variables as for the clouds' own programs.
    pub(super) fn host(&self) -> Result<String, String> {
        let variable = match self.kind {
            Kind::Aws { .. } => "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            Kind::Gcp => "GCE_METADATA_HOST",
            Kind::Azure { .. } => return Ok(format!("{LINK_LOCAL}:80")),
        };
        match env::var(variable) {
            Ok(endpoint) if !endpoint.is_empty() => {
                host_of(&endpoint).ok_or_else(|| format!("{variable}={endpoint}: expected http://HOST:PORT"))
            }
            _ => Ok(format!("{LINK_LOCAL}:80")),
        }
    }

    /// Polls the service until it announces the end of the machine.
    pub(super) async fn watch(mut self, service: Service) -> Notice {
        let (name, mut works) = (self.name(), true);
        loop {
            match self.look(&service).await {
                Ok(None) => {
                    if !std::mem::replace(&mut works, true) {
                        tracing::info!(cloud = name, "the metadata service answers again");
                    }
                }
                Ok(Some((clock, Going { when, why }))) => {
                    return Notice { why, gone_at: Instant::now() + clock.left(when) };
                }
                Err(error) => {
                    if std::mem::replace(&mut works, false) {
                        tracing::warn!(
                            cloud = name, %error,
                            "the metadata service says nothing about whether this machine goes; it is asked again"
                        );
                    }
                }
            }
            time::sleep(self.every).await;
        }
    }

    /// Queries the service once.
    pub(super) async fn look(&mut self, service: &Service) -> Result<Option<(Clock, Going)>, Trouble> {
        match &mut self.kind {
            Kind::Aws { token } => aws(service, token).await,
            Kind::Gcp => gcp(service).await,
            Kind::Azure { machine } => azure(service, machine).await,
        }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Aws { .. } => "AWS",
            Kind::Gcp => "Google Cloud",
            Kind::Azure { .. } => "Azure",
        }
    }
}

async fn aws(service: &Service, known: &mut Option<String>) -> Result<Option<(Clock, Going)>, Trouble> {
    // Repeated with a new token, if the first one has expired.
    for is_last in [false, true] {
        let token = if let Some(token) = known.take() {
            token
        } else {
            let ttl = [("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL_S)];
            answer::aws_token(&service.put(AWS_TOKEN, &ttl).await?.found()?.body)?
        };
        let answer = service.get(AWS_ACTION, &[("x-aws-ec2-metadata-token", &token)]).await?;
        if answer.status == 401 && !is_last {
            continue;
        }
        *known = (answer.status != 401).then_some(token);
        if answer.status == 404 {
            return Ok(None);
        }
        let answer = answer.found()?;
        let going = answer::aws(&answer.body)?;
        return Ok(Some((clock(&answer), going)));
    }
    Err(Trouble::Status(401))
}

async fn gcp(service: &Service) -> Result<Option<(Clock, Going)>, Trouble> {
    let answer = service.get(GCP_PREEMPTED, &[("metadata-flavor", "Google")]).await?.found()?;
    if answer.flavor.as_deref() != Some("Google") {
        return Err(Trouble::Foreign("Google Cloud"));
    }
    Ok(answer::gcp(&answer.body)?.map(|going| (clock(&answer), going)))
}

async fn azure(service: &Service, known: &mut Option<String>) -> Result<Option<(Clock, Going)>, Trouble> {
    let headers = [("metadata", "true")];
    let machine = match known {
        Some(machine) => machine,
        None => known.insert(answer::azure_name(&service.get(AZURE_NAME, &headers).await?.found()?.body)?),
    };
    let answer = service.get(AZURE_EVENTS, &headers).await?.found()?;
    Ok(answer::azure(&answer.body, machine)?.map(|going| (clock(&answer), going)))
}

fn clock(answer: &Answer) -> Clock {
    answer.date.map_or_else(Clock::ours, Clock::Theirs)
}

/// Returns the host and port of a URL, or of a host with or without a port.
fn host_of(endpoint: &str) -> Option<String> {
    let host = endpoint.strip_prefix("http://").unwrap_or(endpoint);
    let host = host.strip_suffix('/').unwrap_or(host);
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
    let has_port =
        host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok() && !host.ends_with(']'));
    is_host.then(|| if has_port { host.to_owned() } else { format!("{host}:80") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_address_is_url_or_host() {
        for (endpoint, host) in [
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("http://[fd00:ec2::254]", "[fd00:ec2::254]:80"),
            ("metadata.google.internal", "metadata.google.internal:80"),
            ("localhost:99", "localhost:99"),
        ] {
            assert_eq!(host_of(endpoint).as_deref(), Some(host));
        }
        for wrong in ["", "https://a/", "http://a/b", "a b", "http://"] {
            assert_eq!(host_of(wrong), None, "{wrong:?}");
        }
    }
}
