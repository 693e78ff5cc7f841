//! The objects that a node offers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::{
    super::locks::lock,
    object::{Object, Stage},
};
use crate::wire::bulk::ObjectName;

/// The objects of one node, by name. An object may be offered several times, at different completeness.
#[derive(Debug, Default)]
pub(in super::super) struct Objects(Mutex<BTreeMap<ObjectName, Vec<Object>>>);

/// Offers an object to the other members until this is dropped. Requests being served at that time are still
/// completed.
#[derive(Debug)]
#[must_use = "the object is offered until this is dropped"]
pub(crate) struct Offer {
    objects: Arc<Objects>,
    object: Object,
}

impl Objects {
    pub(super) fn offer(self: &Arc<Self>, object: Object) -> Offer {
        lock(&self.0).entry(object.name()).or_default().push(object.clone());
        Offer { objects: Arc::clone(self), object }
    }

    /// Returns an offered object, never one that has failed: a complete one before an incomplete one, and one in memory
    /// before one elsewhere, since a content elsewhere is not verified and may be unreadable.
    pub(super) fn get(&self, name: ObjectName) -> Option<Object> {
        let objects = lock(&self.0);
        let offered = objects.get(&name)?.iter().filter(|object| object.stage() != Stage::Failed);
        offered.min_by_key(|object| (object.stage() != Stage::Complete, !object.is_in_memory())).cloned()
    }

    /// Moves the offers of an object behind the others of its name, because it could not be read.
    pub(super) fn move_back(&self, object: &Object) {
        if let Some(offered) = lock(&self.0).get_mut(&object.name()) {
            offered.sort_by_key(|other| other.is_same(object));
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let mut objects = lock(&self.objects.0);
        if let Some(offered) = objects.get_mut(&self.object.name()) {
            if let Some(place) = offered.iter().position(|object| object.is_same(&self.object)) {
                offered.remove(place);
            }
            if offered.is_empty() {
                objects.remove(&self.object.name());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn object_is_available_until_its_last_offer_is_dropped() {
        let (objects, object) = (Arc::<Objects>::default(), Object::new([Bytes::from_static(b"data")]));
        let name = object.name();
        assert!(objects.get(name).is_none());
        let first = objects.offer(object.clone());
        let second = objects.offer(object);
        drop(first);
        assert!(objects.get(name).is_some());
        drop(second);
        assert!(objects.get(name).is_none());
        assert!(lock(&objects.0).is_empty());
    }

    #[test]
    fn most_complete_offer_is_returned() {
        let (objects, data) = (Arc::<Objects>::default(), Bytes::from_static(b"data"));
        let whole = Object::new([data]);
        let stage = || objects.get(whole.name()).map(|object| object.stage());
        let (lost, coming) = (Object::to_be_filled(whole.name()), Object::to_be_filled(whole.name()));
        let _lost = objects.offer(lost.object().clone());
        drop(lost);
        assert_eq!(stage(), None);
        let _coming = objects.offer(coming.object().clone());
        assert_eq!(stage(), Some(Stage::Coming));
        let _whole = objects.offer(whole.clone());
        assert_eq!(stage(), Some(Stage::Complete));
    }

    #[test]
    fn offer_in_memory_is_preferred_and_an_unreadable_one_moved_back() {
        let (objects, memory) = (Arc::<Objects>::default(), Object::new([Bytes::from_static(b"data")]));
        let files = || Object::elsewhere(memory.name(), Arc::new(tempfile::tempfile().unwrap()));
        let (first, second, third) = (files(), files(), files());
        let _first = objects.offer(first.clone());
        let third_offer = objects.offer(third);
        let _second = objects.offer(second.clone());
        let memory_offer = objects.offer(memory.clone());
        assert!(objects.get(memory.name()).unwrap().is_same(&memory));
        drop(memory_offer);
        assert!(objects.get(memory.name()).unwrap().is_same(&first));
        objects.move_back(&first);
        // The order of the others is kept.
        drop(third_offer);
        assert!(objects.get(memory.name()).unwrap().is_same(&second));
    }
}
