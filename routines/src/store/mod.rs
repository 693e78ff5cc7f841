//! The shared store: packages, and the results of jobs. It is a folder or a bucket of objects.
//!
//! | object | content | written |
//! |---|---|---|
//! | `id` | a random id; nodes with another store do not take its jobs | once |
//! | `packages/DIGEST.tar` | the files of a package | once, by `deploy` |
//! | `descriptions/DIGEST.toml` | the description of a package, for lists | by each `deploy`, with the same content |
//! | `names/NAME@VERSION` | the digest of the package | once, by `deploy` |
//! | `jobs/KEY/order.json` | the routine and the arguments of a job of calls | once, before it is submitted; replaced when the job is removed |
//! | `jobs/KEY/WRITER-NUMBER.seg` | results of a job | once, by a node |
//! | `jobs/KEY/cancelled/INDEX` | a call that a user has cancelled | once, by a gateway |
//! | `jobs/KEY/round-N/…`, `jobs/KEY/reduced.json` | combinations of results by a routine, and the last one | as results; once, by the last task |
//! | `jobs/KEY/manifest.json` | the results that count | once, by the first reader after the end |
//! | `values/ID` | a large argument or result of a direct call | once; removed by its caller, or after a day |
//! | `resource-names/NAME`, `resources/NAME/ID` | a shared file, and its content | see [`resource`](crate::resource) |

mod body;
mod manifest;
mod segment;
mod writer;

use std::{
    io::{self, ErrorKind},
    path::Path,
};

use taskwork::{Labels, node::LabelError};
pub(crate) use taskwork_store::{Download, Objects, Upload};
use thiserror::Error;

pub(crate) use self::{
    body::Body,
    manifest::{Line, MANIFEST, PART, PART_BYTES, Results, ResultsError},
    segment::Outcome,
    writer::Writer,
};
use crate::{
    order::Order,
    package::{Description, Package, PackageError, is_name},
    ranges::Ranges,
    tenant::Tenant,
};

/// The name of the label of nodes; its value is the id of the store.
const LABEL: &str = "routines-store";

/// The name of the label of nodes and gateways.
const DIRECT_LABEL: &str = "routines-direct";

/// The name of the order of a job in its folder.
pub(crate) const ORDER: &str = "order.json";

/// The length of a digest in hexadecimal digits.
const DIGEST_DIGITS: usize = 64;

/// The shared store. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) objects: Objects,
    id: String,
    /// The owner of resources.
    pub(crate) tenant: Tenant,
}

/// The reasons for which a routine is not found or deployed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    #[error("{routine:?} is neither NAME, NAME@VERSION nor a digest")]
    Name { routine: String },
    #[error("there is no routine {routine}: routines deploy FOLDER adds it")]
    Missing { routine: String },
    #[error(
        "{name} is deployed with other content already (digest {digest}): a version never changes, so choose \
         another one"
    )]
    Taken { name: String, digest: String },
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error("the store, {name}: {error}")]
    Io { name: String, error: io::Error },
}

impl Store {
    /// Opens a folder, which is created if it is missing, or the store at a URL.
    pub(crate) fn open(place: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Io { name: place.display().to_string(), error };
        Self::new(Objects::open(place).map_err(failed)?).map_err(failed)
    }

    pub(crate) fn new(objects: Objects) -> io::Result<Self> {
        let id = match objects.get_text("id") {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                objects.create("id", format!("{:032x}", rand::random::<u128>()))?;
                objects.get_text("id")?
            }
            id => id?,
        };
        Ok(Self { objects, id, tenant: Tenant::default() })
    }

    /// Returns the store with the resources of a tenant.
    pub(crate) fn of(&self, tenant: Tenant) -> Self {
        Self { tenant, ..self.clone() }
    }

    /// Returns the label of nodes with this store.
    pub(crate) fn label(&self) -> Result<Labels, LabelError> {
        format!("{LABEL}={}", self.id).parse()
    }

    /// Returns the label of nodes and gateways with this store.
    pub(crate) fn direct_label(&self) -> Result<Labels, LabelError> {
        format!("{DIRECT_LABEL}={}", self.id).parse()
    }

    /// Returns the name of the folder of a job's results.
    pub(crate) fn job(key: &str) -> String {
        format!("jobs/{key}")
    }

    /// Writes the order of a job, from which its failed calls can be repeated.
    pub(crate) fn put_order(&self, order: &Order) -> Result<(), StoreError> {
        let name = self::order(&order.key);
        let text = serde_json::to_vec(order).map_err(io::Error::from);
        let written = text.and_then(|text| self.objects.put(&name, text));
        written.map_err(|error| StoreError::Io { name, error })
    }

    pub(crate) fn has_order(&self, key: &str) -> Result<bool, StoreError> {
        let name = order(key);
        self.objects.exists(&name).map_err(|error| StoreError::Io { name, error })
    }

    /// Reads the order of a job.
    pub(crate) fn order(&self, key: &str) -> Result<Order, StoreError> {
        let name = order(key);
        let text = self.objects.get(&name);
        let order = text.and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from));
        order.map_err(|error| StoreError::Io { name, error })
    }

    /// Notes that a call of a job is cancelled, and returns the number of such calls.
    pub(crate) fn cancel(&self, key: &str, index: u64) -> io::Result<u64> {
        self.objects.put(&format!("{}/{index}", cancelled(key)), "")?;
        Ok(self.cancelled(key)?.len())
    }

    /// Returns the calls of a job that are cancelled.
    pub(crate) fn cancelled(&self, key: &str) -> io::Result<Ranges> {
        let mut indices = Ranges::default();
        for index in self.objects.list(&cancelled(key))?.iter().filter_map(|name| name.parse::<u64>().ok()) {
            indices.insert(index..index.saturating_add(1));
        }
        Ok(indices)
    }

    /// Writes a package into the store. Its name and version are permanent.
    pub(crate) fn deploy(&self, package: &Package) -> Result<(), StoreError> {
        let archive = archive(&package.digest);
        let failed = |error| StoreError::Io { name: archive.clone(), error };
        if !self.objects.exists(&archive).map_err(failed)? {
            let mut upload = self.objects.upload(&archive);
            package.pack(&mut upload)?;
            upload.shutdown().map_err(failed)?;
        }
        // Lists of routines need no packages.
        let (_, text) = Description::read(&package.folder)?;
        self.objects.put(&description(&package.digest), text).map_err(failed)?;
        let name = format!("names/{}", package.name());
        if !self.objects.create(&name, package.digest.clone()).map_err(failed)? {
            let digest = self.objects.get_text(&name).map_err(failed)?;
            if digest != package.digest {
                return Err(StoreError::Taken { name: package.name(), digest });
            }
        }
        Ok(())
    }

    /// Returns the names of all routines, each with its version.
    pub(crate) fn names(&self) -> Result<Vec<String>, StoreError> {
        self.objects.list("names").map_err(|error| StoreError::Io { name: "names".to_owned(), error })
    }

    /// Returns the digest and the description of `NAME@VERSION`, without its package.
    pub(crate) fn description(&self, name: &str) -> Result<(String, Description), StoreError> {
        let object = format!("names/{name}");
        let digest = self.objects.get_text(&object).map_err(|error| missing(name, object, error))?;
        let object = description(&digest);
        let text = self.objects.get_text(&object).map_err(|error| missing(name, object.clone(), error))?;
        Ok((digest, Description::parse(Path::new(&object), &text)?))
    }

    /// Returns the digest of `NAME@VERSION` or a digest.
    pub(crate) fn resolve(&self, routine: &str) -> Result<String, StoreError> {
        let is_digest = routine.len() == DIGEST_DIGITS
            && routine.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_digest {
            return Ok(routine.to_owned());
        }
        let parts = routine.split_once('@').filter(|(name, version)| is_name(name) && is_name(version));
        parts.ok_or_else(|| StoreError::Name { routine: routine.chars().take(200).collect() })?;
        let name = format!("names/{routine}");
        self.objects.get_text(&name).map_err(|error| missing(routine, name, error))
    }

    /// Unpacks a package below a folder of this node, after a check of its content.
    pub(crate) fn package(&self, digest: &str, within: &Path) -> Result<Package, StoreError> {
        let name = archive(digest);
        let (archive, _) = self.objects.download(&name).map_err(|error| missing(digest, name, error))?;
        Ok(Package::unpack(archive, digest, within)?)
    }
}

fn order(key: &str) -> String {
    format!("{}/{ORDER}", Store::job(key))
}

fn cancelled(key: &str) -> String {
    format!("{}/cancelled", Store::job(key))
}

fn archive(digest: &str) -> String {
    format!("packages/{digest}.tar")
}

fn description(digest: &str) -> String {
    format!("descriptions/{digest}.toml")
}

fn missing(routine: &str, name: String, error: io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::NotFound => StoreError::Missing { routine: routine.to_owned() },
        _ => StoreError::Io { name, error },
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use self::tests::Faulty;
