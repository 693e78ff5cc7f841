//! Compares the ledger with a plain model, under any sequence of events.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::ledger::{Arrival, Ledger, Place, Relief, Use};
use crate::ids::VersionId;

fn version(call: u64) -> VersionId {
    VersionId { call, slot: 0 }
}

const HERE: Arrival = Arrival { bytes: 40, is_in_memory: true, is_copy: false };
const COPY: Arrival = Arrival { is_copy: true, ..HERE };

#[test]
fn relief_moves_least_recently_used_version_first() {
    let mut ledger = Ledger::new(100);
    (0..2).for_each(|call| ledger.put(version(call), HERE));
    assert_eq!(ledger.relief(), None);
    let used = ledger.begin(version(0));
    ledger.end(used);
    (2..4).for_each(|call| ledger.put(version(call), HERE));
    assert_eq!(ledger.relief(), Some(Relief::Spill(version(1))));
    assert_eq!(ledger.relief(), Some(Relief::Spill(version(0))));
    // The two measures above free enough.
    assert_eq!((ledger.relief(), ledger.used()), (None, 160));
    assert!(ledger.has_left(version(1), true));
    assert!(!ledger.has_left(version(0), false));
    assert_eq!((ledger.relief(), ledger.used()), (Some(Relief::Spill(version(0))), 120));
}

#[test]
fn version_in_use_stays_in_memory() {
    let mut ledger = Ledger::new(50);
    ledger.put(version(0), HERE);
    let used = ledger.begin(version(0));
    ledger.put(version(1), HERE);
    assert_eq!(ledger.relief(), Some(Relief::Spill(version(1))));
    // It is needed before its file is complete.
    let again = ledger.begin(version(1));
    assert!(!ledger.has_left(version(1), true));
    assert_eq!(ledger.relief(), None);
    ledger.end(again);
    assert_eq!(ledger.relief(), Some(Relief::Spill(version(1))));
    assert!(ledger.has_left(version(1), true));
    // There is no room to keep it in memory.
    assert_eq!((ledger.begin(version(1)), ledger.used()), (Use::Alone(40), 80));
    ledger.end(Use::Alone(40));
    ledger.end(used);
    ledger.remove(version(0));
    assert_eq!((ledger.begin(version(1)), ledger.used()), (Use::Shared(version(1)), 40));
    assert_eq!((ledger.take(version(1)), ledger.used()), (Use::Alone(40), 40));
    ledger.end(Use::Alone(40));
    assert_eq!(ledger.used(), 0);
}

#[test]
fn relief_drops_encoded_form_before_moving_versions() {
    let mut ledger = Ledger::new(100);
    (0..2).for_each(|call| ledger.put(version(call), HERE));
    (0..2).for_each(|_| ledger.on_encoded(version(1)));
    assert_eq!(ledger.used(), 120);
    assert_eq!((ledger.relief(), ledger.used()), (Some(Relief::ForgetEncoded(version(1))), 80));
    assert_eq!(ledger.relief(), None);
}

#[test]
fn copies_to_ask_are_only_copies_above_the_threshold() {
    let mut ledger = Ledger::new(100);
    ledger.put(version(0), HERE);
    ledger.put(version(1), COPY);
    assert_eq!(ledger.copies_to_ask(), []);
    ledger.put(version(2), COPY);
    assert_eq!(ledger.copies_to_ask(), [version(1)]);
    assert_eq!(ledger.copies_to_ask(), [version(2)]);
    assert_eq!(ledger.copies_to_ask(), []);
}

#[derive(Debug, Clone)]
enum Event {
    Put(u64, u64, bool),
    Remove(u64),
    Encode(u64),
    Begin(u64),
    Take(u64),
    /// Ends one of the uses.
    End(usize),
    /// Takes the next measure, which succeeds or fails.
    Relieve(bool),
    /// Starts the next measure, and does not complete it.
    Leave,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..9_u64, 0..60_u64, any::<bool>()).prop_map(|(call, bytes, here)| Event::Put(call, bytes, here)),
        (0..9_u64).prop_map(Event::Remove),
        (0..9_u64).prop_map(Event::Encode),
        (0..9_u64).prop_map(Event::Begin),
        (0..9_u64).prop_map(Event::Take),
        (0..9_usize).prop_map(Event::End),
        any::<bool>().prop_map(Event::Relieve),
        Just(Event::Leave),
    ]
}

/// A version in the model.
#[derive(Debug, Clone, Copy)]
struct Plain {
    bytes: u64,
    in_memory: u64,
    /// The number of this version: another one may follow with the same id.
    which: usize,
}

/// The model: it computes the used memory from scratch each time.
#[derive(Default)]
struct Reference {
    versions: BTreeMap<u64, Plain>,
    uses: Vec<(Use, usize)>,
    next: usize,
}

impl Reference {
    fn used(&self) -> u64 {
        let alone = |used: &(Use, usize)| if let Use::Alone(bytes) = used.0 { bytes } else { 0 };
        self.versions.values().map(|plain| plain.in_memory).sum::<u64>()
            + self.uses.iter().map(alone).sum::<u64>()
    }

    fn is_in_use(&self, call: u64) -> bool {
        let which = self.versions.get(&call).map(|plain| plain.which);
        self.uses.iter().any(|(used, its)| *used == Use::Shared(version(call)) && Some(*its) == which)
    }
}

proptest! {
    #[test]
    fn ledger_agrees_with_plain_model(events in prop::collection::vec(event(), 1..200)) {
        let (mut ledger, mut reference) = (Ledger::new(100), Reference::default());
        for event in events {
            happens(&mut ledger, &mut reference, &event);
            prop_assert_eq!(ledger.used(), reference.used());
        }
        for (used, _) in std::mem::take(&mut reference.uses) {
            ledger.end(used);
        }
        // After all uses have ended, every version that takes memory can be moved to a file, and nothing stays
        // counted.
        for call in 0..9 {
            ledger.has_left(version(call), true);
        }
        while let Some(Relief::Spill(left) | Relief::ForgetEncoded(left)) = ledger.relief() {
            ledger.has_left(left, true);
        }
        prop_assert!(ledger.used() <= 100);
        (0..9).for_each(|call| ledger.remove(version(call)));
        prop_assert_eq!((ledger.used(), ledger.leaving, ledger.idle.len(), ledger.twice.len()), (0, 0, 0, 0));
    }
}

fn happens(ledger: &mut Ledger, reference: &mut Reference, event: &Event) {
    match *event {
        // A version in use is not put again: it would be the same.
        Event::Put(call, bytes, is_in_memory) if !reference.is_in_use(call) => {
            ledger.put(version(call), Arrival { bytes, is_in_memory, is_copy: false });
            let in_memory = if is_in_memory { bytes } else { 0 };
            reference.next += 1;
            reference.versions.insert(call, Plain { bytes, in_memory, which: reference.next });
        }
        Event::Remove(call) if !reference.is_in_use(call) => {
            ledger.remove(version(call));
            reference.versions.remove(&call);
        }
        Event::Encode(call) => {
            ledger.on_encoded(version(call));
            let is_leaving =
                ledger.versions.get(&version(call)).is_some_and(|known| known.place == Place::Leaves);
            if let Some(plain) =
                reference.versions.get_mut(&call).filter(|plain| plain.in_memory > 0 && !is_leaving)
            {
                plain.in_memory = 2 * plain.bytes;
            }
        }
        Event::Begin(call) => {
            let used = ledger.begin(version(call));
            if let (Use::Shared(_), Some(plain)) = (used, reference.versions.get_mut(&call)) {
                plain.in_memory = plain.in_memory.max(plain.bytes);
            }
            let which = reference.versions.get(&call).map_or(0, |plain| plain.which);
            reference.uses.push((used, which));
        }
        Event::Take(call) if !reference.is_in_use(call) => {
            reference.uses.push((ledger.take(version(call)), 0));
            reference.versions.remove(&call);
        }
        Event::End(number) if number < reference.uses.len() => {
            ledger.end(reference.uses.swap_remove(number).0);
        }
        Event::Relieve(works) => match ledger.relief() {
            Some(Relief::ForgetEncoded(VersionId { call, .. })) => {
                let plain = reference.versions.get_mut(&call).expect("it is there");
                plain.in_memory = plain.bytes;
            }
            Some(Relief::Spill(left)) => {
                assert!(!reference.is_in_use(left.call), "{left:?} is in use");
                let plain = reference.versions.get_mut(&left.call).expect("it is there");
                if ledger.has_left(left, works) {
                    plain.in_memory = 0;
                }
            }
            None => assert!(
                reference.used() - ledger.leaving <= 100
                    || reference.versions.iter().all(|(call, plain)| {
                        plain.in_memory == 0
                            || reference.is_in_use(*call)
                            || ledger.versions[&version(*call)].place == Place::Leaves
                    })
            ),
        },
        Event::Leave => {
            if let Some(Relief::ForgetEncoded(VersionId { call, .. })) = ledger.relief() {
                let plain = reference.versions.get_mut(&call).expect("it is there");
                plain.in_memory = plain.bytes;
            }
        }
        Event::Put(..) | Event::Remove(_) | Event::Take(_) | Event::End(_) => {}
    }
}
