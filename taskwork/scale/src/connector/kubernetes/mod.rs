//! Machines that are pods of a Deployment in Kubernetes: one Deployment for each offer.
//!
//! ```text
//! create     Deployment: replicas + COUNT, and the key, in one conditional patch; then wait for the pods
//! list       Deployment and its pods; the oldest pods belong to the oldest requests, which is recorded at each pod
//! terminate  pods: deletion cost -1000;  Deployment: replicas - N, and their names, in one conditional patch;
//!            delete these pods, which is the SIGTERM by which nodes drain
//! ```
//!
//! The number of replicas and the [ledger] of requests change together, so that a repeated call has no further
//! effect, even if an answer was lost. Therefore the Deployment itself is patched instead of its subresource `scale`,
//! which could not contain the ledger. Another client may change the number of replicas at the same time: the
//! connector changes it by differences.
//!
//! Kubernetes replaces a lost or evicted pod, under the key of the lost one.
//!
//! The pods of a Deployment are those that its own `ReplicaSet`s keep, not all that its labels select: other pods are
//! not included in the number of replicas, and must not be deleted here.

mod access;
mod api;
mod http;
mod ledger;
mod pods;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use serde::Deserialize;
use tokio::time::{self, Instant};

use self::{
    access::{Access, Files},
    api::{Api, Deployment, Patched},
    pods::Pod,
};
use super::{Calling, Connector, Key, MACHINES_MAX, Machine, MachineId, Offer, Refusal, file::Common};

/// The Kubernetes settings in a connector's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// The Deployment of each offer. No two may select the same pods.
    deployments: BTreeMap<String, String>,
    /// The namespace of the Deployments; by default that of the pod of this process.
    #[serde(default)]
    namespace: Option<String>,
    /// The address of the API: `http://127.0.0.1:8001` of `kubectl proxy`, or `https://…` with the two files below;
    /// by default that of the cluster of this process.
    #[serde(default)]
    api: Option<String>,
    /// A file with the token of a service account. It is read for every request, since it may be renewed.
    #[serde(default)]
    token_file: Option<PathBuf>,
    /// A file with the certificates of the API's authorities, in PEM.
    #[serde(default)]
    ca_file: Option<PathBuf>,
}

/// The connector to Kubernetes, through its API.
#[derive(Debug)]
pub(super) struct Kubernetes {
    api: Api,
    common: Common,
    /// The Deployments by their offers.
    deployments: BTreeMap<String, String>,
    patience: Patience,
}

/// The time limits of the calls.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For a whole call.
    call: Duration,
    /// For the pods of a request, which need not run. The request is repeated later.
    pods: Duration,
    /// Until pods that Kubernetes refuses to create are withdrawn.
    refused: Duration,
    /// Between two reads.
    look: Duration,
}

const PATIENCE: Patience = Patience {
    call: Duration::from_secs(50),
    pods: Duration::from_secs(8),
    refused: Duration::from_secs(3),
    look: Duration::from_millis(300),
};

/// The maximum number of pods whose keys are recorded in one call; the rest follow in later calls.
const NOTED_AT_ONCE: usize = 200;
/// The number of pods that are deleted at once.
const ENDED_AT_ONCE: usize = 50;
/// The maximum number of tries of a change if another client was faster.
const CONFLICTS_MAX: u32 = 10;
/// The pause between these tries, which grows with each one.
const CONFLICT_PAUSE: Duration = Duration::from_millis(40);

impl Kubernetes {
    /// Opens the connector. Does not contact Kubernetes yet.
    ///
    /// # Errors
    /// If the settings or the files they name are invalid.
    pub(super) fn new(common: Common, settings: Settings) -> Result<Self, String> {
        if let Some(offer) =
            common.offers.iter().find(|offer| !settings.deployments.contains_key(&offer.name))
        {
            return Err(format!("deployments has none for the offer {:?}", offer.name));
        }
        for (offer, deployment) in &settings.deployments {
            if common.offer(offer).is_none() {
                return Err(format!("deployments names the offer {offer:?}, which is not among the offers"));
            }
            access::check_name("deployments", deployment)?;
        }
        let different: BTreeSet<&String> = settings.deployments.values().collect();
        if different.len() < settings.deployments.len() {
            return Err("deployments: two offers have the same Deployment, so its pods would belong to both"
                .to_owned());
        }
        let files = Files {
            token: settings.token_file.map(|file| common.path(&file)),
            authorities: settings.ca_file.map(|file| common.path(&file)),
        };
        let access =
            Access::new(settings.api.as_deref(), settings.namespace, files, |name| std::env::var(name).ok())?;
        Ok(Self { api: Api::new(access), common, deployments: settings.deployments, patience: PATIENCE })
    }

    /// Shortens all time limits, for tests.
    #[cfg(test)]
    fn hurried(mut self) -> Self {
        let ms = Duration::from_millis;
        self.patience = Patience { call: ms(5000), pods: ms(600), refused: ms(100), look: ms(10) };
        self
    }

    async fn create_pods(&self, offer: &str, count: u32, key: &Key) -> Result<Vec<MachineId>, Refusal> {
        let Some(name) = self.deployments.get(offer) else {
            let message = format!("the Kubernetes connector has no offer {offer:?}");
            return Err(Refusal::wrong(message));
        };
        let began = Instant::now();
        self.change(name, |deployment| {
            let mut ledger = deployment.ledger.clone();
            if ledger.has(key) {
                return Ok(None);
            }
            let replicas = deployment.replicas.saturating_add(count);
            if replicas as usize > MACHINES_MAX {
                let message = format!(
                    "the Deployment {name} would have {replicas} pods; at most {MACHINES_MAX} are listed"
                );
                return Err(Refusal::exhausted(message));
            }
            ledger.request(key, count, deployment.replicas)?;
            Ok(Some((replicas, ledger)))
        })
        .await?;
        // The number is raised by now, so every failure leaves the outcome open.
        let outcome = self.pods_of(name, key, began).await;
        outcome.unwrap_or_else(|refusal| Err(Refusal::unknown(refusal.message)))
    }

    /// Waits for the pods of a request. The outer error means that the outcome is unknown, the inner one that the
    /// request was withdrawn.
    async fn pods_of(
        &self,
        name: &str,
        key: &Key,
        began: Instant,
    ) -> Result<Result<Vec<MachineId>, Refusal>, Refusal> {
        loop {
            let (deployment, pods) = self.read_deployment(name).await?;
            let there = deployment.ledger.pods_of(key, &pods);
            let waited = began.elapsed();
            let count = deployment.ledger.count(key) as usize;
            if there.len() >= count || waited >= self.patience.pods {
                let there = there.into_iter().map(Pod::id).collect::<Result<Vec<_>, _>>()?;
                self.record_keys(&deployment, &pods).await?;
                if there.len() >= count {
                    return Ok(Ok(there));
                }
                // The pods would exist without a machine, since the controllers that create pods are unavailable.
                // Repeating the request under this key is harmless; under another key it would create twice as many
                // later.
                return Err(Refusal::unknown(format!(
                    "Kubernetes has created {} of {count} pods of the Deployment {name} so far",
                    there.len()
                )));
            }
            if let Some(why) = deployment.refused.as_ref().filter(|_| waited >= self.patience.refused) {
                return self.withdraw(name, key, why).await;
            }
            time::sleep(self.patience.look).await;
        }
    }

    async fn read_deployment(&self, name: &str) -> Result<(Deployment, Vec<Pod>), Refusal> {
        let deployment = self.api.deployment(name).await?;
        let mut pods = self.api.pods(&deployment.selector).await?;
        pods.retain(|pod| pod.is_of(name));
        Ok((deployment, pods))
    }

    /// Withdraws pods that Kubernetes refuses to create, so that they are not created later without need. The inner
    /// error means that the whole request was withdrawn.
    async fn withdraw(
        &self,
        name: &str,
        key: &Key,
        why: &str,
    ) -> Result<Result<Vec<MachineId>, Refusal>, Refusal> {
        let (deployment, pods) = self.read_deployment(name).await?;
        let there: Vec<MachineId> =
            deployment.ledger.pods_of(key, &pods).into_iter().map(Pod::id).collect::<Result<_, _>>()?;
        let kept = u32::try_from(there.len()).unwrap_or(u32::MAX);
        self.change(name, |deployment| {
            let mut ledger = deployment.ledger.clone();
            let missing = ledger.keep(key, kept);
            Ok((missing > 0).then(|| (deployment.replicas.saturating_sub(missing), ledger)))
        })
        .await?;
        if !there.is_empty() {
            return Ok(Ok(there));
        }
        let message = format!("Kubernetes creates no pods of the Deployment {name}: {why}");
        Ok(Err(if why.contains("quota") { Refusal::exhausted(message) } else { Refusal::wrong(message) }))
    }

    /// Lists all pods. Unless this is a dry run, records their keys.
    async fn list_pods(&self, is_dry_run: bool) -> Result<Vec<Machine>, Refusal> {
        let mut machines = Vec::new();
        for offer in &self.common.offers {
            let (deployment, pods) = self.read_deployment(&self.deployments[&offer.name]).await?;
            if !is_dry_run {
                self.record_keys(&deployment, &pods).await?;
            }
            let mut keys = deployment.ledger.assign(&pods);
            for pod in &pods {
                machines.push(Machine {
                    id: pod.id()?,
                    offer: offer.name.clone(),
                    state: pod.state(deployment.ledger.has_ended(&pod.name)),
                    key: keys.remove(pod.name.as_str()).flatten(),
                    created_ms: pod.created_ms,
                });
            }
        }
        Ok(machines)
    }

    /// Records the keys of pods at the pods.
    async fn record_keys(&self, deployment: &Deployment, pods: &[Pod]) -> Result<(), Refusal> {
        for (pod, key) in deployment.ledger.unnoted(pods).into_iter().take(NOTED_AT_ONCE) {
            self.api.note_key(&pod.name, &key).await?;
        }
        Ok(())
    }

    async fn end_pods(&self, machines: &[MachineId]) -> Result<(), Refusal> {
        let wanted: BTreeSet<&str> = machines.iter().map(MachineId::as_str).collect();
        for name in self.deployments.values() {
            let (_, pods) = self.read_deployment(name).await?;
            let ending: Vec<&Pod> =
                pods.iter().filter(|pod| wanted.contains(pod.name.as_str()) && !pod.is_ending).collect();
            // In groups, so that an interrupted call has recorded a part.
            for some in ending.chunks(ENDED_AT_ONCE) {
                self.end_some(name, some, &pods).await?;
            }
        }
        Ok(())
    }

    async fn end_some(&self, name: &str, ending: &[&Pod], all: &[Pod]) -> Result<(), Refusal> {
        for pod in ending.iter().filter(|pod| !pod.is_over) {
            self.api.make_cheap(&pod.name).await?;
        }
        self.change(name, |deployment| {
            let mut ledger = deployment.ledger.clone();
            let fewer = ledger.end(ending, all);
            Ok((fewer > 0).then(|| (deployment.replicas.saturating_sub(fewer), ledger)))
        })
        .await?;
        // Their ReplicaSet chooses them by their cost, but prefers pods that are not ready. If it has deleted such a
        // pod, or has not acted yet, this restores the number.
        for pod in ending {
            self.api.delete_pod(&pod.name, &pod.uid).await?;
        }
        Ok(())
    }

    /// Changes the number of replicas and the ledger of a Deployment together; `None` keeps both.
    async fn change(
        &self,
        name: &str,
        mut change: impl FnMut(&Deployment) -> Result<Option<(u32, ledger::Ledger)>, Refusal>,
    ) -> Result<(), Refusal> {
        for tries in 1..=CONFLICTS_MAX {
            let deployment = self.api.deployment(name).await?;
            let Some((replicas, ledger)) = change(&deployment)? else { return Ok(()) };
            match self.api.set_replicas(name, &deployment, replicas, &ledger).await? {
                Patched::Done => return Ok(()),
                Patched::Conflict => time::sleep(CONFLICT_PAUSE * tries).await,
            }
        }
        Err(Refusal::unknown(format!(
            "the Deployment {name} is changed by somebody else all the time: {CONFLICTS_MAX} tries were in vain. Is there an \
             autoscaler for it? Remove it: there may be only one"
        )))
    }

    /// Limits the time of a call.
    async fn bounded<T>(&self, call: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        time::timeout(self.patience.call, call).await.unwrap_or_else(|_| {
            let waited = self.patience.call.as_secs();
            Err(Refusal::unknown(format!("{} did not complete the call within {waited} s", self.api.place())))
        })
    }
}

impl Connector for Kubernetes {
    fn offers(&self) -> &[Offer] {
        &self.common.offers
    }

    fn create<'a>(&'a self, offer: &'a str, count: u32, key: &'a Key) -> Calling<'a, Vec<MachineId>> {
        Box::pin(async move {
            if count == 0 {
                return Ok(Vec::new());
            }
            self.bounded(self.create_pods(offer, count, key)).await
        })
    }

    fn list(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(self.bounded(self.list_pods(false)))
    }

    fn look(&self) -> Calling<'_, Vec<Machine>> {
        Box::pin(self.bounded(self.list_pods(true)))
    }

    fn terminate<'a>(&'a self, machines: &'a [MachineId]) -> Calling<'a, ()> {
        Box::pin(async move {
            if machines.is_empty() {
                return Ok(());
            }
            self.bounded(self.end_pods(machines)).await
        })
    }
}
