//! Tenants: the users, or groups of users, of one cluster that share nothing but the library.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::package::is_name;

/// The maximum length of a name, in bytes: names of jobs contain it.
const NAME_BYTES_MAX: usize = 16;

/// The owner of jobs, calls and resources. The default one has no name: it is that of commands with access to the store, and
/// of gateways without tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Tenant(String);

impl Tenant {
    /// Parses the name of a tenant.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        (is_name(name) && name.len() <= NAME_BYTES_MAX).then(|| Self(name.to_owned()))
    }

    pub(crate) fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a name of an object in the store, or of a folder: other tenants have others.
    pub(crate) fn object(&self, name: &str) -> String {
        if self.is_default() { name.to_owned() } else { format!("tenants/{self}/{name}") }
    }

    /// Returns the name of a folder on a node. That of the default tenant is no name of another one.
    pub(crate) fn folder(&self) -> &str {
        if self.is_default() { "_" } else { &self.0 }
    }

    /// Returns the key of something of this tenant on a node, from a digest.
    pub(crate) fn key(&self, digest: &str) -> String {
        if self.is_default() { digest.to_owned() } else { format!("{self}-{digest}") }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
