//! Resources: files that are uploaded once, and that calls read as local files.
//!
//! | object | content |
//! |---|---|
//! | `resource-names/NAME` | the digest, the size and the id of the current content |
//! | `resources/NAME/ID` | a content; earlier ones remain for the jobs that refer to them, until the name is deleted |
//!
//! The resources of a [tenant](crate::tenant) are below `tenants/TENANT/`.
//!
//! An argument contains `{"$resource": "NAME"}`. The submission replaces the name by a [reference](Resource::reference) to
//! the current content, with its digest, and the node replaces that by `{"$file": "PATH"}`.

mod cache;
mod peers;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io::{self, ErrorKind, Write as _},
    ops::Range,
    string::FromUtf8Error,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use self::{
    cache::{Files, Held, Local, Resources},
    peers::Peers,
};
use crate::{
    package::is_name,
    store::{Download, Store, Upload},
    tenant::Tenant,
};

/// The maximum size of a resource, in bytes.
pub(crate) const RESOURCE_BYTES_MAX: u64 = 64 << 30;

/// The maximum size of all files with the arguments of a job, in bytes; a file that is several axes counts as several.
pub(crate) const LIST_BYTES_MAX: u64 = 64 << 20;

/// The folder of names in the store.
const NAMES: &str = "resource-names";

/// The folder of contents.
const CONTENTS: &str = "resources";

/// The current content of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resource {
    pub(crate) name: String,
    /// The BLAKE3 digest.
    pub(crate) digest: String,
    pub(crate) bytes: u64,
    id: String,
    #[serde(default)]
    tenant: Tenant,
}

/// The reasons for which a resource is not found or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ResourceError {
    #[error(
        "{0:?} is no name of a resource: it must have 1 to 60 letters, digits, `.`, `-` or `_`, the first of them a \
         letter or digit"
    )]
    Name(String),
    #[error("there is no resource {0}: routines put NAME FILE adds it")]
    Missing(String),
    #[error(
        "the quota `resource_bytes` of the tenant is used up: delete resources, also those with replaced contents, and \
         repeat the request"
    )]
    Quota,
    #[error("the resource has more than {RESOURCE_BYTES_MAX} bytes")]
    TooLarge,
    #[error(
        "with the resource {0}, the files with arguments have more than {LIST_BYTES_MAX} bytes: submit several jobs"
    )]
    LongList(String),
    #[error("the resource {0} is no text in UTF-8: {1}")]
    NotText(String, FromUtf8Error),
    #[error("the store: {0}")]
    Io(#[from] io::Error),
}

/// A content that is being uploaded.
#[derive(Debug)]
pub(crate) struct Draft {
    store: Store,
    name: String,
    id: String,
    upload: Upload,
    hasher: blake3::Hasher,
    bytes: u64,
    /// The number of bytes that the quota of the tenant permits.
    left: Option<u64>,
}

impl Resource {
    /// Returns the text that jobs record.
    fn reference(&self) -> String {
        let own = format!("{}/{}/{}", self.name, self.id, self.digest);
        if self.tenant.is_default() { own } else { format!("{own}/{}", self.tenant) }
    }

    /// Parses a reference, which may come from another process.
    fn parse(reference: &str) -> Option<Self> {
        let mut parts = reference.split('/').map(str::to_owned);
        let (name, id, digest) = (parts.next()?, parts.next()?, parts.next()?);
        let is_valid = is_name(&name)
            && [(&id, 32), (&digest, 64)].iter().all(|(digits, length)| {
                digits.len() == *length && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
        let tenant = parts.next().map_or_else(|| Some(Tenant::default()), |its| Tenant::parse(&its))?;
        (is_valid && parts.next().is_none()).then_some(Self { name, digest, bytes: 0, id, tenant })
    }

    fn content(&self) -> String {
        self.tenant.object(&format!("{}/{}", folder(&self.name), self.id))
    }

    /// Returns the path of the copy within the resources of a node.
    fn copy(&self) -> String {
        format!("{}/{}", self.tenant.folder(), self.digest)
    }
}

impl Draft {
    /// Limits the content to this size, by a quota.
    pub(crate) fn limit(self, left: Option<u64>) -> Self {
        Self { left, ..self }
    }

    pub(crate) fn write(&mut self, part: &[u8]) -> Result<(), ResourceError> {
        self.bytes += part.len() as u64;
        if self.bytes > RESOURCE_BYTES_MAX {
            return Err(ResourceError::TooLarge);
        }
        if self.left.is_some_and(|left| self.bytes > left) {
            return Err(ResourceError::Quota);
        }
        self.hasher.update(part);
        Ok(self.upload.write_all(part)?)
    }

    /// Makes this the content of the name.
    pub(crate) fn finish(mut self) -> Result<Resource, ResourceError> {
        self.upload.shutdown()?;
        let digest = self.hasher.finalize().to_hex().to_string();
        let Self { name, bytes, id, .. } = self;
        let resource = Resource { name, digest, bytes, id, tenant: self.store.tenant.clone() };
        let record = serde_json::to_vec(&resource).map_err(io::Error::from)?;
        self.store.objects.put(&self.store.record_of(&resource.name), record)?;
        Ok(resource)
    }
}

impl Store {
    /// Starts the upload of a content. It replaces that of the name at the end.
    pub(crate) fn put_resource(&self, name: &str) -> Result<Draft, ResourceError> {
        check_name(name)?;
        let id = format!("{:032x}", rand::random::<u128>());
        let upload = self.objects.upload(&self.tenant.object(&format!("{}/{id}", folder(name))));
        let (store, name, hasher) = (self.clone(), name.to_owned(), blake3::Hasher::new());
        Ok(Draft { store, name, id, upload, hasher, bytes: 0, left: None })
    }

    pub(crate) fn resource(&self, name: &str) -> Result<Resource, ResourceError> {
        check_name(name)?;
        let record = self.objects.get(&self.record_of(name)).map_err(|error| missing(name, error))?;
        let resource: Resource = serde_json::from_slice(&record).map_err(io::Error::from)?;
        Ok(resource)
    }

    pub(crate) fn resources(&self) -> Result<Vec<Resource>, ResourceError> {
        let names = self.objects.list(&self.tenant.object(NAMES))?;
        // One may be deleted at the same time.
        let resources = names.iter().map(|name| self.resource(name));
        resources.filter(|resource| !matches!(resource, Err(ResourceError::Missing(_)))).collect()
    }

    /// Returns the size of all contents, also of replaced ones.
    pub(crate) fn resource_bytes(&self) -> Result<u64, ResourceError> {
        let sizes = self.objects.sizes(&self.tenant.object(CONTENTS))?;
        Ok(sizes.into_iter().map(|(_, bytes)| bytes).sum())
    }

    /// Reads a content, and returns its size.
    pub(crate) fn resource_content(&self, resource: &Resource) -> Result<(Download, u64), ResourceError> {
        let content = self.objects.download(&resource.content());
        content.map_err(|error| missing(&resource.name, error))
    }

    /// Reads the content of a name that is a list of arguments. `left` is the number of bytes that the job may still read.
    pub(crate) fn list_of(&self, name: &str, left: &mut u64) -> Result<String, ResourceError> {
        let resource = self.resource(name)?;
        let rest = left.checked_sub(resource.bytes);
        *left = rest.ok_or_else(|| ResourceError::LongList(name.to_owned()))?;
        let content = self.objects.get(&resource.content()).map_err(|error| missing(name, error))?;
        String::from_utf8(content.into()).map_err(|error| ResourceError::NotText(name.to_owned(), error))
    }

    /// Deletes a name with all its contents, also those that an interrupted upload or deletion has left.
    pub(crate) fn delete_resource(&self, name: &str) -> Result<(), ResourceError> {
        check_name(name)?;
        let contents = self.objects.list(&self.tenant.object(&folder(name)))?;
        if contents.is_empty() && !self.objects.exists(&self.record_of(name))? {
            return Err(ResourceError::Missing(name.to_owned()));
        }
        // First, so that no content is missing for the name.
        self.objects.delete(&self.record_of(name))?;
        for id in contents {
            self.objects.delete(&self.tenant.object(&format!("{}/{id}", folder(name))))?;
        }
        Ok(())
    }

    /// Replaces the names of resources in an argument by references to their current contents. `known` is for the
    /// arguments of one request.
    pub(crate) fn refer(
        &self,
        argument: String,
        known: &mut HashMap<String, Resource>,
    ) -> Result<String, ResourceError> {
        let found = references(&argument);
        if found.is_empty() {
            return Ok(argument);
        }
        let mut with = Vec::new();
        for (place, name) in found {
            if !known.contains_key(name) {
                known.insert(name.to_owned(), self.resource(name)?);
            }
            with.push((place, format!("{{\"$resource\":\"{}\"}}", known[name].reference())));
        }
        Ok(replaced(&argument, &with))
    }

    fn record_of(&self, name: &str) -> String {
        self.tenant.object(&format!("{NAMES}/{name}"))
    }
}

/// Returns the folder of the contents of a name.
fn folder(name: &str) -> String {
    format!("{CONTENTS}/{name}")
}

fn check_name(name: &str) -> Result<(), ResourceError> {
    is_name(name).then_some(()).ok_or_else(|| ResourceError::Name(name.chars().take(200).collect()))
}

fn missing(name: &str, error: io::Error) -> ResourceError {
    match error.kind() {
        ErrorKind::NotFound => ResourceError::Missing(name.to_owned()),
        _ => error.into(),
    }
}

/// Returns whether an argument contains a resource.
pub(crate) fn has_references(argument: &str) -> bool {
    !references(argument).is_empty()
}

/// Returns the places of the objects `{"$resource": TEXT}` in valid JSON, with their texts.
fn references(json: &str) -> Vec<(Range<usize>, &str)> {
    const KEY: &str = "\"$resource\"";
    let (bytes, mut at, mut found) = (json.as_bytes(), 0, Vec::new());
    if !json.contains(KEY) {
        return found;
    }
    let after = |at: usize| {
        let text = json[at..].strip_prefix('{')?.trim_start().strip_prefix(KEY)?.trim_start();
        let (text, rest) = text.strip_prefix(':')?.trim_start().strip_prefix('"')?.split_once('"')?;
        Some((text, json.len() - rest.trim_start().strip_prefix('}')?.len()))
    };
    let mut is_in_string = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if is_in_string => at += 1,
            b'"' => is_in_string = !is_in_string,
            b'{' if !is_in_string => {
                if let Some((text, end)) = after(at) {
                    found.push((at..end, text));
                    at = end;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Replaces places in a text.
fn replaced(text: &str, with: &[(Range<usize>, String)]) -> String {
    let (mut result, mut end) = (String::with_capacity(text.len()), 0);
    for (place, by) in with {
        result.extend([&text[end..place.start], by]);
        end = place.end;
    }
    result + &text[end..]
}

#[cfg(test)]
mod tests_of_names {
    use std::{io::Read as _, sync::Arc};

    use object_store::memory::InMemory;

    use super::*;
    use crate::store::Objects;

    pub(super) fn store() -> Store {
        Store::new(Objects::new(Arc::new(InMemory::new())).unwrap()).unwrap()
    }

    pub(super) fn put(store: &Store, name: &str, content: &str) -> Resource {
        let mut draft = store.put_resource(name).unwrap();
        draft.write(content.as_bytes()).unwrap();
        draft.finish().unwrap()
    }

    fn content(store: &Store, resource: &Resource) -> Result<String, ResourceError> {
        let mut text = String::new();
        store.resource_content(resource)?.0.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn name_has_its_last_content_and_jobs_keep_theirs() {
        let store = store();
        assert!(matches!(store.resource("table"), Err(ResourceError::Missing(name)) if name == "table"));
        let first = put(&store, "table", "first");
        let argument = r#"[{"$resource" : "table"}, "{\"$resource\":\"x\"}", {"a": {"$resource":"table"}}]"#;
        let refer = |argument: &str| store.refer(argument.to_owned(), &mut HashMap::new());
        let recorded = refer(argument).unwrap();
        let second = put(&store, "table", "second");
        put(&store, "table.more", "");
        let object = format!(r#"{{"$resource":"{}"}}"#, first.reference());
        assert_eq!(recorded, format!(r#"[{object}, "{{\"$resource\":\"x\"}}", {{"a": {object}}}]"#));
        let parsed = Resource::parse(&first.reference()).unwrap();
        assert_eq!(content(&store, &parsed).unwrap(), "first");
        assert_eq!(content(&store, &store.resource("table").unwrap()).unwrap(), "second");
        let listed: Vec<_> = store.resources().unwrap();
        assert_eq!(
            listed.iter().map(|it| (&*it.name, it.bytes)).collect::<Vec<_>>(),
            [("table", 6), ("table.more", 0)]
        );
        store.delete_resource("table").unwrap();
        for gone in [first, second] {
            assert!(matches!(content(&store, &gone), Err(ResourceError::Missing(_))));
        }
        assert_eq!(store.resources().unwrap().len(), 1);
        store.objects.put("resources/left/0", "by an interrupted upload").unwrap();
        store.delete_resource("left").unwrap();
        assert!(matches!(store.delete_resource("left"), Err(ResourceError::Missing(_))));
        let missing = refer(argument).unwrap_err();
        assert!(missing.to_string().contains("table"), "{missing}");
    }

    #[test]
    fn content_beyond_limit_is_refused_and_does_not_appear() {
        let store = store();
        let mut draft = store.put_resource("table").unwrap();
        draft.bytes = RESOURCE_BYTES_MAX - 1;
        draft.write(b"1").unwrap();
        assert!(matches!(draft.write(b"2"), Err(ResourceError::TooLarge)));
        drop(draft);
        assert!(matches!(store.delete_resource("table"), Err(ResourceError::Missing(_))));
    }

    #[test]
    fn lists_of_arguments_share_one_limit_and_are_text() {
        let store = store();
        put(&store, "list", "1\n2\n");
        let mut left = 7;
        assert_eq!(store.list_of("list", &mut left).unwrap(), "1\n2\n");
        assert!(
            matches!(store.list_of("list", &mut left), Err(ResourceError::LongList(name)) if name == "list")
        );
        let mut draft = store.put_resource("image").unwrap();
        draft.write(&[0xff]).unwrap();
        draft.finish().unwrap();
        let refused = store.list_of("image", &mut left).unwrap_err();
        assert!(matches!(refused, ResourceError::NotText(..)), "{refused}");
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        let store = store();
        for name in ["", "..", "a/b", "../id", &"x".repeat(61)] {
            assert!(matches!(store.put_resource(name), Err(ResourceError::Name(_))), "{name}");
            assert!(matches!(store.delete_resource(name), Err(ResourceError::Name(_))), "{name}");
            let argument = format!(r#"{{"$resource":"{name}"}}"#);
            assert!(matches!(store.refer(argument, &mut HashMap::new()), Err(ResourceError::Name(_))));
        }
        let reference = put(&store, "a", "1").reference();
        for wrong in [
            &reference[1..],
            &reference[..60],
            &format!("{reference}/.."),
            &format!("{reference}/x/y"),
            &reference.replace("a/", "../"),
        ] {
            assert_eq!(Resource::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_whole_objects_refer_to_resources() {
        for json in [
            r#"["$resource", "a"]"#,
            r#"{"$resource": 1}"#,
            r#"{"$resource": "a", "b": 1}"#,
            r#"{"a": "\"{\"$resource\":\"b\"}"}"#,
            r#"{"$resource": "a"#,
        ] {
            assert!(!has_references(json), "{json}");
        }
        let places = references(
            r#"{"x": [ { "$resource"	:
 "a.b" } ]}"#,
        );
        assert_eq!(
            places.iter().map(|(place, text)| (place.len(), *text)).collect::<Vec<_>>(),
            [(24, "a.b")]
        );
    }
}
