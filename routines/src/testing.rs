//! The set-up of tests that run Python.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{
    host::Host,
    package::Package,
    runtime::{Interpreters, Program},
    store::Store,
};

/// A store and the folder around it.
pub(crate) struct Fixture {
    pub(crate) folder: PathBuf,
    pub(crate) store: Store,
}

/// Returns the store of the host of this process.
pub(crate) fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        // Not removed: statics are not dropped.
        let folder = tempfile::tempdir().unwrap().keep();
        let store = Store::open(&folder.join("store")).unwrap();
        let program = Program::Interpreters(Interpreters::default());
        let host = Host::new(store.clone(), &folder, program, None, 4).unwrap();
        host.install().unwrap();
        Fixture { folder, store }
    })
}

/// Returns a new package with a module in a folder.
pub(crate) fn package(folder: &Path, module: &str, entry: &str, more: &str) -> Package {
    let folder = folder.join(format!("source-{:x}", rand::random::<u64>()));
    fs::create_dir(&folder).unwrap();
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let text =
        format!("name = '{name}'\nversion = '1'\nruntime = 'python3'\nentry = 'module:{entry}'\n{more}\n");
    fs::write(folder.join("routine.toml"), text).unwrap();
    let place = format!("FOLDER = {:?}\n", folder.to_str().unwrap());
    fs::write(folder.join("module.py"), place + module).unwrap();
    Package::read(&folder).unwrap()
}
