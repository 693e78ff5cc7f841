//! The data that members store, in tests with random programs.

use std::collections::{BTreeMap, BTreeSet};

use super::{Graph, Mark, Member, Source, graph_tests::version, version::State};
use crate::ids::VersionId;

/// The values and marks of the versions on each member.
pub(super) type Stores = BTreeMap<Member, BTreeMap<VersionId, (u64, Mark)>>;

/// Returns a version from one of its owners, except for the vanished ones.
pub(super) fn fetch(stores: &Stores, source: &Source, vanished: &BTreeSet<Member>) -> Option<(u64, Mark)> {
    let there = source.members.iter().filter(|member| !vanished.contains(member));
    let mut stores = there.filter_map(|member| stores.get(member));
    let found = stores.find_map(|store| store.get(&source.version)).copied();
    assert!(found.is_none_or(|(_, mark)| mark == source.mark), "{source:?}");
    found
}

/// Checks that each member stores the data that the graph assumes there.
pub(super) fn check(stores: &Stores, graph: &Graph) {
    for (id, version) in &graph.known().versions {
        let State::Present(copies) = &version.state else { continue };
        assert!(!copies.members.is_empty(), "{id:?}");
        for member in &copies.members {
            assert!(stores[member].contains_key(id), "{id:?} is not with {member:?}");
        }
    }
}

/// Checks that data without handles has vanished from the graph and from every store, except for data that can be
/// neither recomputed nor restored, and data that the program has read, which is kept for a restart.
pub(super) fn check_rest(stores: &Stores, graph: &Graph) {
    let known = graph.known();
    let is_exempt = |version: VersionId| known.journal.is_precious(version);
    let are_exempt = known.versions.keys().all(|version| is_exempt(*version))
        && known.calls.iter().all(|(call, _)| is_exempt(version(call, 0)));
    assert!(graph.is_empty() || are_exempt, "{:?} {:?}", known.calls, known.versions);
    for (member, store) in stores {
        let mut left = store.keys().filter(|version| !known.kept.has(**version, *member));
        assert!(left.all(|version| is_exempt(*version)), "{member:?} keeps {store:?}");
    }
}
