//! The display of a job by several nodes, each of which describes its part.

use super::{
    Cell, Field, JobDisplay, Table, Unit,
    reading::{DOCUMENTS_MAX, PICTURES_MAX, ROWS_MAX, TABLES_MAX, VALUES_MAX},
};

/// Merges the displays of the nodes of a job, each with whether its node is there. Of a node that has gone only the sums
/// of the past count, unless all have.
pub(crate) fn merged<'a>(parts: impl IntoIterator<Item = (bool, &'a JobDisplay)>) -> Option<JobDisplay> {
    let (present, gone): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(is_there, _)| *is_there);
    let mut present = present.into_iter().map(|(_, display)| display);
    let mut gone = gone.into_iter().map(|(_, display)| display.past());
    let (mut merged, is_any_there) = match present.next() {
        Some(first) => (first.clone(), true),
        None => (gone.next()?, false),
    };
    present.for_each(|display| merged.merge(display));
    for mut display in gone {
        if is_any_there {
            display.tables.clear();
        }
        merged.merge(&display);
    }
    Some(merged)
}

impl JobDisplay {
    /// Returns the display without values of the present.
    fn past(&self) -> Self {
        let mut past = self.clone();
        for value in past.values.iter_mut().filter(|value| value.current) {
            value.value = value.value.take().map(|_| Cell::Count(0));
        }
        past.ahead = None;
        past
    }

    /// Adds the display of another node: numbers of things, bytes and work ahead are added, and the rows of tables joined; of other
    /// items with the same name the first one stays.
    fn merge(&mut self, other: &Self) {
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
        match (&mut self.ahead, &other.ahead) {
            (Some(own), Some(ahead)) => own.add(ahead),
            (own @ None, ahead) => own.clone_from(ahead),
            (Some(_), None) => {}
        }
        join(&mut self.pictures, &other.pictures, |picture| &picture.name);
        join(&mut self.documents, &other.documents, |offer| &offer.name);
        // Bounded as at the reader.
        self.values.truncate(VALUES_MAX);
        self.tables.truncate(TABLES_MAX);
        self.pictures.truncate(PICTURES_MAX);
        self.documents.truncate(DOCUMENTS_MAX);
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
