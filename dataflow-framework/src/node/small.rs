//! Small versions, which are sent within assignments and reports.
//!
//! Fetching a version from another node takes a request and a reply, and the call waits for both; a message costs as
//! much as sending about 10 KiB. Therefore small outputs are sent to the coordinator in the report of the outcome,
//! and small inputs are sent by the coordinator in the assignment.

use super::{executor::Executor, fetches::Missing, store::SMALL_BYTES_MAX};
use crate::{
    core::Mark,
    ids::{CallId, VersionId},
    value::Value,
};

impl Executor {
    /// Returns a version encoded, if it is here and small.
    pub(crate) fn small(&self, version: VersionId) -> Option<Vec<u8>> {
        self.store.small(version)?.small()
    }

    /// Returns the report on a version of this size.
    pub(crate) fn contents(&self, call: CallId, bytes: &[u64]) -> Vec<(u32, Vec<u8>)> {
        let small = (0..).zip(bytes).filter(|(_, bytes)| **bytes <= SMALL_BYTES_MAX);
        small.filter_map(|(slot, _)| Some((slot, self.small(VersionId { call, slot })?))).collect()
    }

    /// Stores a version that came in a message.
    pub(crate) fn put_small(&self, version: VersionId, content: Vec<u8>, mark: Mark) {
        let bytes = content.len() as u64;
        self.keep_brought(version, Value::from_encoded(content), mark, bytes, true);
    }

    /// Stores the versions that came in an assignment, removes all versions that are here from the list, and returns
    /// the new ones.
    pub(super) fn take_in(&self, missing: &mut Vec<Missing>) -> Vec<VersionId> {
        let mut new = Vec::new();
        missing.retain_mut(|Missing { version, mark, content, .. }| {
            if self.store.has(*version) && !self.gives_up_unseen(*version) {
                return false;
            }
            let Some(content) = content.take() else { return true };
            self.put_small(*version, content, *mark);
            new.push(*version);
            false
        });
        new
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Executor, Missing, SMALL_BYTES_MAX};
    use crate::{core::Mark, encoding::decode, ids::VersionId, node::Store, value::Value};

    fn version(slot: u32) -> VersionId {
        VersionId { call: 7, slot }
    }

    fn put(executor: &Executor, version: VersionId, of: Vec<u8>) -> u64 {
        let value = Value::new(of);
        let bytes = value.size();
        executor.put(version, value, Mark::default(), bytes);
        bytes
    }

    #[test]
    fn end_of_call_carries_small_versions_only() {
        let executor =
            Executor::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks);
        let small = put(&executor, version(0), vec![7; 10]);
        let large = put(&executor, version(1), vec![7; 1 << 10]);
        assert!(small <= SMALL_BYTES_MAX && large > SMALL_BYTES_MAX);
        let contents = executor.contents(version(0).call, &[small, large]);
        let [(0, content)] = &contents[..] else { panic!("only the first one is small: {contents:?}") };
        assert_eq!(decode::<Vec<u8>>(content).expect("it is a list"), [7; 10]);
        assert_eq!(executor.small(version(2)), None);
    }

    #[test]
    fn small_version_in_an_order_is_not_requested() {
        let executor =
            Executor::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks);
        put(&executor, version(0), vec![7; 10]);
        let missing = |slot, content| Missing {
            version: version(slot),
            mark: Mark::default(),
            from: Vec::new(),
            content,
        };
        let mut all = vec![missing(0, Some(vec![0])), missing(1, Some(vec![1, 5])), missing(2, None)];
        assert_eq!(executor.take_in(&mut all), [version(1)]);
        assert_eq!(all, [missing(2, None)]);
        assert_eq!(executor.small(version(1)), Some(vec![1, 5]));
    }
}
