//! The display of a job by several nodes, each of which describes its part.

use super::{Cell, Field, JobDisplay, Table, Unit, reading::ROWS_MAX};

impl JobDisplay {
    /// Adds the display of another node: numbers of things and bytes are added, and the rows of tables joined; of other
    /// items with the same name the first one stays.
    pub(crate) fn merge(&mut self, other: &Self) {
        for value in &other.values {
            match self.values.iter_mut().find(|own| own.name == value.name) {
                Some(own) => own.merge(value),
                None => self.values.push(value.clone()),
            }
        }
        for table in &other.tables {
            match self.tables.iter_mut().find(|own| own.name == table.name) {
                Some(own) => own.merge(table),
                None => self.tables.push(table.clone()),
            }
        }
        join(&mut self.pictures, &other.pictures, |picture| &picture.name);
        join(&mut self.documents, &other.documents, |offer| &offer.name);
    }
}

impl Field {
    fn merge(&mut self, other: &Self) {
        match (&mut self.value, &other.value) {
            (Some(Cell::Count(own)), Some(Cell::Count(count)))
                if matches!(self.unit, Unit::Count | Unit::Bytes) =>
            {
                *own = own.saturating_add(*count);
            }
            (own @ None, value) => own.clone_from(value),
            _ => {}
        }
    }
}

impl Table {
    fn merge(&mut self, other: &Self) {
        let room = ROWS_MAX.saturating_sub(self.rows.len());
        self.rows.extend(other.rows.iter().take(room).cloned());
        let left_out = other.rows.len().saturating_sub(room) as u64;
        self.omitted = self.omitted.saturating_add(other.omitted).saturating_add(left_out);
        // It is that of one part.
        self.total = None;
    }
}

fn join<T: Clone>(own: &mut Vec<T>, others: &[T], name: impl Fn(&T) -> &String) {
    for other in others {
        if own.iter().all(|own| name(own) != name(other)) {
            own.push(other.clone());
        }
    }
}
