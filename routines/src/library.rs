//! The routines of a store: the latest version of a name, and the search by name, text and tag.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    package::is_name,
    store::{Store, StoreError},
    wire::EntryKind,
};

/// The default and the maximum number of routines of a page.
pub(crate) const PAGE: usize = 100;
pub(crate) const PAGE_MAX: usize = 1_000;

/// The time for which direct calls and calls of routines remember the latest version of a name.
pub(crate) const LATEST_AGE_MAX: Duration = Duration::from_secs(1);

/// A routine in a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Listed {
    pub(crate) routine: String,
    pub(crate) digest: String,
    pub(crate) kind: EntryKind,
    pub(crate) description: String,
    pub(crate) tags: Vec<String>,
}

/// Routines, sorted by name and version.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Routines)]
pub(crate) struct Page {
    pub(crate) routines: Vec<Listed>,
    /// The cursor of the next page.
    pub(crate) next: Option<String>,
}

/// A search in the library.
#[derive(Debug, Default)]
pub(crate) struct Query {
    /// Words that are in the name, the text or the tags.
    pub(crate) text: String,
    pub(crate) tag: Option<String>,
    /// The last routine of the previous page.
    pub(crate) cursor: Option<String>,
    pub(crate) limit: Option<usize>,
}

/// The descriptions that this process has read. They are permanent, as names are.
#[derive(Debug, Default)]
pub(crate) struct Library(Mutex<HashMap<String, Arc<Listed>>>);

impl Library {
    /// Returns a page of the routines that a query matches. Unreadable ones are skipped.
    pub(crate) fn find(&self, store: &Store, query: &Query) -> Result<Page, StoreError> {
        let words: Vec<String> = query.text.split_whitespace().map(str::to_lowercase).collect();
        let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
        let mut names = store.names()?;
        names.sort_by(|one, other| order(one, other));
        let (mut routines, mut next) = (Vec::new(), None);
        for name in &names {
            if query.cursor.as_ref().is_some_and(|cursor| order(name, cursor).is_le()) {
                continue;
            }
            let listed = match self.listed(store, name) {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::warn!(%error, name, "a routine cannot be listed");
                    continue;
                }
            };
            if !listed.matches(&words, query.tag.as_deref()) {
                continue;
            }
            if routines.len() == limit {
                next = routines.last().map(|last: &Listed| last.routine.clone());
                break;
            }
            routines.push(Listed::clone(&listed));
        }
        Ok(Page { routines, next })
    }

    fn listed(&self, store: &Store, name: &str) -> Result<Arc<Listed>, StoreError> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listed) = known().get(name) {
            return Ok(Arc::clone(listed));
        }
        // Without the lock, since this reads files.
        let (digest, of) = store.description(name)?;
        let (routine, kind, description, tags) = (name.to_owned(), of.kind, of.text, of.tags);
        let listed = Arc::new(Listed { routine, digest, kind, description, tags });
        known().insert(name.to_owned(), Arc::clone(&listed));
        Ok(listed)
    }
}

impl Listed {
    fn matches(&self, words: &[String], tag: Option<&str>) -> bool {
        let text = format!("{} {} {}", self.routine, self.description, self.tags.join(" ")).to_lowercase();
        words.iter().all(|word| text.contains(word))
            && tag.is_none_or(|tag| self.tags.iter().any(|its| its == tag))
    }
}

/// The latest versions of names, by a list of the store that is repeated when it is too old.
#[derive(Debug, Default)]
pub(crate) struct Latest(Mutex<Option<(Instant, HashMap<String, String>)>>);

impl Latest {
    /// Returns `NAME@VERSION` with the latest version for `NAME`, and anything else as it is. Versions that were deployed
    /// within this time may be missing.
    pub(crate) fn of<'a>(
        &self,
        store: &Store,
        routine: &'a str,
        age_max: Duration,
    ) -> Result<Cow<'a, str>, StoreError> {
        if !is_name(routine) {
            return Ok(Cow::Borrowed(routine));
        }
        let asked = Instant::now();
        // Held while the store is listed: a call that has waited uses the list of another one that began after it.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, names)) = &*known
            && (*at >= asked || at.elapsed() < age_max)
            && let Some(latest) = names.get(routine)
        {
            return Ok(Cow::Owned(latest.clone()));
        }
        let at = Instant::now();
        let mut all = store.names()?;
        all.sort_by(|one, other| order(one, other));
        let with_name = |full: String| Some((full.split_once('@')?.0.to_owned(), full));
        // The last of equal keys counts.
        let names: HashMap<_, _> = all.into_iter().filter_map(with_name).collect();
        let latest = names.get(routine).cloned();
        *known = Some((at, names));
        latest.map(Cow::Owned).ok_or_else(|| StoreError::Missing { routine: routine.to_owned() })
    }
}

/// Compares names, and versions of the same name as numbers: 1.9 precedes 1.10, and 2.0-rc1 precedes 2.0.
fn order(one: &str, other: &str) -> Ordering {
    let parts = |text| str::split_once(text, '@').unwrap_or((text, ""));
    let ((name, version), (other_name, other_version)) = (parts(one), parts(other));
    let by_number = || {
        let release =
            |text| str::split_once(text, '-').map_or((text, None), |(head, rest)| (head, Some(rest)));
        let ((head, rest), (other_head, other_rest)) = (release(version), release(other_version));
        let by_rest = || match (rest, other_rest) {
            (Some(rest), Some(other)) => compare(rest, other),
            (rest, other) => other.is_some().cmp(&rest.is_some()),
        };
        compare(head, other_head).then_with(by_rest)
    };
    // The text itself at last, so that different names are never equal.
    name.cmp(other_name).then_with(by_number).then_with(|| one.cmp(other))
}

/// Compares texts by their runs of digits and of other characters.
fn compare(one: &str, other: &str) -> Ordering {
    runs(one).cmp(runs(other))
}

/// Returns the runs of a text. A number is compared by its length without leading zeros first.
fn runs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_digit = |c: &char| c.is_ascii_digit();
    let mut rest = text;
    std::iter::from_fn(move || {
        let of_digits = is_digit(&rest.chars().next()?);
        let end = rest.find(|c: char| is_digit(&c) != of_digits).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        let run = if of_digits { run.trim_start_matches('0') } else { run };
        Some((if of_digits { run.len() + 1 } else { 0 }, run))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;

    use super::*;
    use crate::package::Package;

    fn deploy(store: &Store, name: &str, version: &str, more: &str) {
        let source = tempdir().unwrap();
        let text =
            format!("name = '{name}'\nversion = '{version}'\nruntime = 'python3'\nentry = 'm:f'\n{more}\n");
        fs::write(source.path().join("routine.toml"), text).unwrap();
        store.deploy(&Package::read(source.path()).unwrap()).unwrap();
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let versions = ["a@1", "a@1.2-rc9", "a@1.2-rc10", "a@1.2", "a@1.10", "a@1.10.1", "a@2026-1", "ab@1"];
        for pair in versions.windows(2) {
            assert_eq!(order(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(order(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
    }

    #[test]
    fn name_without_version_is_the_latest_one() {
        let folder = tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let latest = Latest::default();
        let of = |routine: &'static str| latest.of(&store, routine, Duration::ZERO);
        assert!(matches!(of("pi"), Err(StoreError::Missing { .. })));
        for version in ["1.9", "1.10", "1.10-rc1"] {
            deploy(&store, "pi", version, "");
        }
        deploy(&store, "pi2", "7", "");
        assert_eq!(of("pi").unwrap(), "pi@1.10");
        assert_eq!(of("pi@1.9").unwrap(), "pi@1.9");
    }

    #[test]
    fn latest_version_is_remembered_up_to_its_age() {
        let folder = tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let latest = Latest::default();
        let of = |routine: &str, age_max| latest.of(&store, routine, age_max).unwrap().into_owned();
        deploy(&store, "pi", "1", "");
        let (old, now) = (Duration::MAX, Duration::ZERO);
        assert_eq!(of("pi", old), "pi@1");
        deploy(&store, "pi", "2", "");
        assert_eq!(of("pi", old), "pi@1", "the store is not listed");
        assert_eq!(of("pi", now), "pi@2");
        deploy(&store, "pi", "3", "");
        deploy(&store, "new", "1", "");
        assert_eq!(of("new", old), "new@1", "a missing name is looked for in the store");
        assert_eq!(of("pi", old), "pi@3");
    }

    #[test]
    fn query_finds_words_and_tags_page_by_page() {
        let folder = tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        deploy(&store, "pi", "1.10", "description = 'An Integral'\ntags = ['math', 'slow']");
        deploy(&store, "pi", "1.9", "description = 'an integral'\ntags = ['math']");
        deploy(&store, "area", "1", "tags = ['math']");
        deploy(&store, "word", "1", "");
        let library = Library::default();
        let names = |query: Query| {
            let page = library.find(&store, &query).unwrap();
            (page.routines.into_iter().map(|it| it.routine).collect::<Vec<_>>(), page.next)
        };
        let text = |text: &str| Query { text: text.to_owned(), ..Query::default() };
        assert_eq!(names(text("integral PI")).0, ["pi@1.9", "pi@1.10"]);
        assert_eq!(names(text("nothing")).0, [""; 0]);
        let math =
            |cursor| Query { tag: Some("math".to_owned()), limit: Some(2), cursor, ..Query::default() };
        let (first, next) = names(math(None));
        assert_eq!(
            (&*first, next.as_deref()),
            (&["area@1".to_owned(), "pi@1.9".to_owned()][..], Some("pi@1.9"))
        );
        assert_eq!(names(math(next)), (vec!["pi@1.10".to_owned()], None));
        // A damaged package does not hide the others.
        fs::remove_dir_all(folder.path().join("descriptions")).unwrap();
        assert_eq!(Library::default().find(&store, &Query::default()).unwrap().routines.len(), 0);
        assert_eq!(names(Query::default()).0.len(), 4, "descriptions are permanent");
    }
}
