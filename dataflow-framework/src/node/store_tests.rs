//! Stores whose limit is smaller than their data.

use super::{
    ledger::Use,
    room::Room,
    store::{Inputs, Lacking, Store},
};
use crate::{
    core::{Assignment, Manner, Mark, Work},
    failure::Trouble,
    ids::{Argument, VersionId},
    task::NOT_RUN,
    value::Value,
};

fn version(call: u64) -> VersionId {
    VersionId { call, slot: 0 }
}

/// The content of a version, about 18 KB when encoded.
fn content(call: u64) -> Vec<u64> {
    (0..2_000).map(|number| (number << 40) + call).collect()
}

/// Puts versions of these calls.
fn put(store: &Store, calls: std::ops::Range<u64>) -> u64 {
    let mut all = 0;
    for call in calls {
        let value = Value::new(content(call));
        let bytes = value.size();
        all += bytes;
        store.put(version(call), value, Mark::default(), bytes, false);
        store.relieve().expect("there is room");
    }
    all
}

fn reads(arguments: Vec<Argument>, in_place: Vec<bool>) -> Assignment {
    Assignment {
        call: 1_000,
        work: Work::Task(&NOT_RUN),
        mark: Mark::default(),
        tries: 0,
        arguments: arguments.into(),
        in_place,
        manner: Manner::default(),
        elsewhere: Vec::new(),
    }
}

fn inputs(store: &Store, calls: &[u64]) -> Inputs {
    let versions = calls.iter().copied().map(version).collect();
    store.inputs(&reads(vec![Argument::ReadAll(versions)], Vec::new())).expect("they are here")
}

#[test]
fn store_keeps_all_versions_beyond_its_limit() {
    let store = Store::limited(Room::Bytes(50_000));
    let all = put(&store, 0..60);
    assert!(all > 10 * 50_000, "{all} bytes");
    for call in (0..60).rev().chain(0..60) {
        let Inputs { values, uses } = inputs(&store, &[call]);
        let value = values.into_iter().next().expect("it was asked for");
        assert_eq!(*value.read::<Vec<u64>>().expect("it is one"), content(call));
        store.release(uses);
        store.relieve().expect("there is room");
    }
    let (used, in_memory) = store.in_memory();
    assert!(used <= 50_000 && used == in_memory, "{used} bytes are counted, and {in_memory} are in memory");
    assert_eq!(store.held().len(), 60);
    (0..60).for_each(|call| drop(store.forget(version(call))));
    assert_eq!(store.in_memory(), (0, 0));
}

#[test]
fn version_changed_in_place_is_removed_from_memory_and_file() {
    let store = Store::limited(Room::Bytes(30_000));
    put(&store, 0..10);
    for call in [0, 9] {
        let update = reads(vec![Argument::Update(version(call))], vec![true]);
        let Inputs { values, uses } = store.inputs(&update).expect("it is here");
        assert!(!store.has(version(call)));
        assert!(matches!(uses[..], [Use::Alone(bytes)] if bytes > 0), "{uses:?}");
        let value = values.into_iter().next().expect("it was asked for");
        assert_eq!(value.own::<Vec<u64>>().expect("it is one"), content(call));
        store.release(uses);
    }
}

#[test]
fn inputs_larger_than_limit_are_refused_with_reason() {
    let store = Store::limited(Room::Bytes(30_000));
    put(&store, 0..10);
    let versions = (0..10).map(version).collect();
    let lacking = store.inputs(&reads(vec![Argument::ReadAll(versions)], Vec::new())).err();
    let Some(Lacking::Room(failed)) = lacking else { panic!("it is too much: {lacking:?}") };
    assert!(matches!(failed.trouble, Trouble::Store(_)), "{failed:?}");
    let reason = failed.reason;
    assert!(reason.starts_with("it reads 1") && reason.contains("the store takes 29.2 KiB"), "{reason}");
    // Nothing is in use.
    let Inputs { uses, .. } = inputs(&store, &[3]);
    store.release(uses);
    let lacking = store.inputs(&reads(vec![Argument::Read(version(11))], Vec::new())).err();
    assert!(matches!(lacking, Some(Lacking::Version(missing)) if missing == version(11)));
}

#[test]
fn encoded_form_is_dropped_when_store_is_full() {
    let store = Store::limited(Room::Bytes(30_000));
    put(&store, 0..1);
    let value = store.get(version(0)).expect("it is here");
    value.part(0, 1).expect("it can be encoded");
    store.on_encoded(version(0));
    put(&store, 1..2);
    assert!(!value.is_twice());
    assert_eq!(store.held().len(), 2);
}
