//! Small versions, which are sent within assignments and reports.
//!
//! Fetching a version from another node takes a request and a reply, and the call waits for both; a message costs as
//! much as sending about 10 KiB. Therefore small outputs are sent to the coordinator in the report of the outcome,
//! and small inputs are sent by the coordinator in the assignment.

use serde::{Deserialize, Serialize};

use super::{fetches::Missing, site::Site, store::SMALL_BYTES_MAX};
use crate::{core::Mark, ids::VersionId, value::Value};

/// The part of a report that describes an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told {
    /// Its size, in bytes.
    Size(u64),
    /// The encoded value.
    Content(Vec<u8>),
}

impl Told {
    /// Returns the size of the version, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Size(bytes) => *bytes,
            Self::Content(content) => content.len() as u64,
        }
    }
}

impl Site {
    /// Returns the encoded version, if it is here and small.
    pub(crate) fn small(&self, version: VersionId) -> Option<Vec<u8>> {
        self.store.small(version)?.small()
    }

    /// Returns the report on a version of this size.
    pub(crate) fn told(&self, version: VersionId, bytes: u64) -> Told {
        let content = if bytes <= SMALL_BYTES_MAX { self.small(version) } else { None };
        content.map_or(Told::Size(bytes), Told::Content)
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

    use super::{Missing, SMALL_BYTES_MAX, Site, Told};
    use crate::{core::Mark, encoding::decode, ids::VersionId, node::Store, value::Value};

    fn version(slot: u32) -> VersionId {
        VersionId { call: 7, slot }
    }

    fn put(site: &Site, version: VersionId, of: Vec<u8>) -> u64 {
        let value = Value::new(of);
        let bytes = value.size();
        site.put(version, value, Mark::default(), bytes);
        bytes
    }

    #[test]
    fn only_what_is_small_goes_with_the_news() {
        let site = Site::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks);
        let small = put(&site, version(0), vec![7; 10]);
        let large = put(&site, version(1), vec![7; 1 << 10]);
        assert!(small <= SMALL_BYTES_MAX && large > SMALL_BYTES_MAX);
        let Told::Content(content) = site.told(version(0), small) else { panic!("it is small") };
        assert_eq!(decode::<Vec<u8>>(&content).expect("it is a list"), [7; 10]);
        assert_eq!(site.told(version(1), large), Told::Size(large));
        assert_eq!(site.small(version(2)), None);
    }

    #[test]
    fn what_comes_with_an_order_is_not_asked_for() {
        let site = Site::new(Arc::default(), Store::default(), None, true, &crate::program::CallsOfTasks);
        put(&site, version(0), vec![7; 10]);
        let missing = |slot, content| Missing {
            version: version(slot),
            mark: Mark::default(),
            from: Vec::new(),
            content,
        };
        let mut all = vec![missing(0, Some(vec![0])), missing(1, Some(vec![1, 5])), missing(2, None)];
        assert_eq!(site.take_in(&mut all), [version(1)]);
        assert_eq!(all, [missing(2, None)]);
        assert_eq!(site.small(version(1)), Some(vec![1, 5]));
    }
}
