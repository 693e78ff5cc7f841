//! The cities at which a tour may still be improved: their don't-look bits are off.

use crate::instance::City;

/// Cities that wait for their turn, each at most once.
#[derive(Debug)]
pub(super) struct Agenda {
    waiting: Vec<City>,
    waits: Vec<bool>,
}

impl Agenda {
    pub(super) fn new(cities: usize) -> Self {
        Self { waiting: Vec::new(), waits: vec![false; cities] }
    }

    pub(super) fn extend(&mut self, cities: impl IntoIterator<Item = City>) {
        for city in cities {
            if !std::mem::replace(&mut self.waits[city], true) {
                self.waiting.push(city);
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<City> {
        let city = self.waiting.pop()?;
        self.waits[city] = false;
        Some(city)
    }
}
