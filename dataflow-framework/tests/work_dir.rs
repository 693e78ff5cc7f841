//! The directory for the files of a process. A process has one at a time, so this test needs its own process.

use std::{error::Error, fs};

use dataflow_framework::{Data, File, Settings, Workflow, tasks};

#[test]
fn files_are_stored_in_configured_work_dir() -> Result<(), Box<dyn Error>> {
    Workflow::new(tasks![])?.sequential().run(|| {
        let place = tempfile::tempdir()?;
        let [first, second] = ["first/below", "second"].map(|name| place.path().join(name));
        Settings::default().work_dir(&first).apply()?;
        let old = File::new("name", "old")?;
        Settings::default().work_dir(&second).apply()?;
        let new = Data::new(File::new("name", "new")?);
        assert!(old.path().starts_with(&first) && new.get()?.path().starts_with(&second));
        assert_eq!((old.read_to_string()?, new.get()?.read_to_string()?), ("old".into(), "new".into()));
        drop((old, new));
        assert_eq!(fs::read_dir(&first)?.count() + fs::read_dir(&second)?.count(), 0);
        // A file cannot serve as the directory.
        let wrong = place.path().join("file");
        fs::write(&wrong, "")?;
        Settings::default().work_dir(&wrong).apply()?;
        let error = File::new("name", "").expect_err("there is no room").to_string();
        assert!(error.starts_with(&wrong.display().to_string()), "{error}");
        assert!(error.contains("no files can be kept there (set DATAFLOW_WORK_DIR"), "{error}");
        Settings::default().work_dir(&second).apply()?;
        assert!(File::new("name", "")?.is_empty()?);
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    })?;
    Ok(())
}
