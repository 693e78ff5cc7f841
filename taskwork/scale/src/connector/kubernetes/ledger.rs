//! The ledger of a Deployment's requests, kept in an annotation. Pure.
//!
//! A Deployment has a number of replicas, and does not distinguish them. The ledger records the requests for which
//! this number was raised and the pods for which it was lowered, so that each is done once.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::pods::Pod;
use crate::connector::{Key, Refusal};

/// The requests to a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// The number of pods from before the first request, or without a key.
    #[serde(default)]
    base: u32,
    /// The requests, the oldest first.
    #[serde(default)]
    requests: Vec<Request>,
    /// The pods for which the number was lowered, until they are gone.
    #[serde(default)]
    ended: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    key: Key,
    /// The number of its pods.
    count: u32,
}

/// The number of requests without pods that are remembered, so that they are not repeated.
const EMPTY_MAX: usize = 32;

/// The maximum number of requests, and of pods being deleted: an annotation has room for 256 KiB.
const ENTRIES_MAX: usize = 2000;

impl Ledger {
    pub(super) fn has(&self, key: &Key) -> bool {
        self.requests.iter().any(|request| request.key == *key)
    }

    pub(super) fn count(&self, key: &Key) -> u32 {
        self.requests.iter().find(|request| request.key == *key).map_or(0, |request| request.count)
    }

    /// Returns whether the number was lowered for a pod.
    pub(super) fn has_ended(&self, pod: &str) -> bool {
        self.ended.contains(pod)
    }

    /// Adds a request. `replicas` is the number before it.
    pub(super) fn request(&mut self, key: &Key, count: u32, replicas: u32) -> Result<(), Refusal> {
        if self.requests.is_empty() {
            self.base = replicas;
        }
        if self.requests.len() >= ENTRIES_MAX {
            return Err(Refusal::exhausted(format!(
                "{ENTRIES_MAX} requests have pods; end some of them first"
            )));
        }
        self.requests.push(Request { key: key.clone(), count });
        self.forget_empty();
        Ok(())
    }

    /// Reduces a request to a number of pods, and returns the difference. A request with none is removed, as if it
    /// had not been made.
    pub(super) fn keep(&mut self, key: &Key, kept: u32) -> u32 {
        let Some(at) = self.requests.iter().position(|request| request.key == *key) else { return 0 };
        let missing = self.requests[at].count.saturating_sub(kept);
        self.requests[at].count -= missing;
        if kept == 0 {
            self.requests.remove(at);
        }
        missing
    }

    /// Records the deletion of some of all pods, and returns the decrease of the number. A pod that has already
    /// terminated is no longer included in it.
    pub(super) fn end(&mut self, ending: &[&Pod], all: &[Pod]) -> u32 {
        let keys = self.assign(all);
        let new = ending.iter().filter(|pod| pod.counts() && !self.ended.contains(&pod.name));
        let new: Vec<String> = new.map(|pod| pod.name.clone()).collect();
        // Deleted pods are not requested again, and their names are not reused.
        self.ended.retain(|name| all.iter().any(|pod| pod.name == *name));
        for name in &new {
            match keys.get(name.as_str()).cloned().flatten() {
                Some(key) => {
                    if let Some(request) = self.requests.iter_mut().find(|request| request.key == key) {
                        request.count = request.count.saturating_sub(1);
                    }
                }
                None => self.base = self.base.saturating_sub(1),
            }
            self.ended.insert(name.clone());
        }
        self.forget_empty();
        u32::try_from(new.len()).unwrap_or(u32::MAX)
    }

    /// Returns the key of each pod. A pod with a recorded key keeps it. Among the others, the oldest are those from
    /// before the first request, followed by those of the oldest requests with missing pods. Pods that are being
    /// deleted have no key, since their places are free for others.
    pub(super) fn assign<'a>(&self, pods: &'a [Pod]) -> BTreeMap<&'a str, Option<Key>> {
        let mut all: Vec<&Pod> =
            pods.iter().filter(|pod| pod.counts() && !self.has_ended(&pod.name)).collect();
        all.sort_by_key(|pod| (pod.created_ms, &pod.name));
        let mut places = self.requests.clone();
        let mut keys = BTreeMap::new();
        for pod in &all {
            let noted =
                places.iter_mut().find(|place| pod.key.as_ref() == Some(&place.key) && place.count > 0);
            if let Some(place) = noted {
                place.count -= 1;
                keys.insert(pod.name.as_str(), Some(place.key.clone()));
            }
        }
        all.retain(|pod| !keys.contains_key(pod.name.as_str()));
        let base = std::iter::repeat_n(None, self.base as usize);
        let asked = places
            .iter()
            .flat_map(|place| std::iter::repeat_n(Some(place.key.clone()), place.count as usize));
        let free = base.chain(asked).chain(std::iter::repeat(None));
        keys.extend(all.into_iter().map(|pod| pod.name.as_str()).zip(free));
        keys
    }

    /// Returns the pods with an unrecorded key, with their keys. Without a record they could swap places with others,
    /// since Kubernetes reports ages in whole seconds.
    pub(super) fn unnoted<'a>(&self, pods: &'a [Pod]) -> Vec<(&'a Pod, Key)> {
        let mut keys = self.assign(pods);
        let key = |pod: &'a Pod| Some((pod, keys.remove(pod.name.as_str())??));
        pods.iter().filter_map(key).filter(|(pod, key)| pod.key.as_ref() != Some(key)).collect()
    }

    pub(super) fn pods_of<'a>(&self, key: &Key, pods: &'a [Pod]) -> Vec<&'a Pod> {
        let keys = self.assign(pods);
        let is_of = |pod: &&Pod| keys.get(pod.name.as_str()).is_some_and(|its| its.as_ref() == Some(key));
        pods.iter().filter(is_of).collect()
    }

    /// Removes the oldest requests without pods.
    fn forget_empty(&mut self) {
        let empty = self.requests.iter().filter(|request| request.count == 0).count();
        let mut surplus = empty.saturating_sub(EMPTY_MAX);
        self.requests.retain(|request| {
            let is_forgotten = request.count == 0 && surplus > 0;
            surplus -= usize::from(is_forgotten);
            !is_forgotten
        });
    }
}
