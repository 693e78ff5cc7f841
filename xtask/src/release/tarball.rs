//! Archives by `tar` and gzip that depend only on the names and contents of the files: sorted, owned by
//! root, and with one modification time.

use std::{collections::BTreeMap, io::Write as _};

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::files::{File, Files, Kind};

/// Makes an archive of files, all below `top`: empty, or a path that ends with `/`. `epoch` is the time of all of
/// them, in seconds since 1970.
///
/// # Errors
/// None in practice: it is written to memory.
pub(crate) fn tar(files: &Files, top: &str, epoch: u64) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (name, file) in with_folders(files, top) {
        let bytes = file.map_or(&[][..], |file| &file.bytes);
        let mut header = header(file, epoch)?;
        // Not by `append_data` if it can be helped: that drops the `./` that packages of Debian have before all names.
        let written = if let Some(field) = header.as_old_mut().name.get_mut(..name.len()) {
            field.copy_from_slice(name.as_bytes());
            header.set_cksum();
            archive.append(&header, bytes)
        } else {
            archive.append_data(&mut header, &name, bytes)
        };
        written.with_context(|| name)?;
    }
    archive.into_inner().context("an archive in memory")
}

/// Makes an archive as [`tar()`] does, and compresses it.
///
/// # Errors
/// As [`tar()`].
pub(crate) fn tar_gz(files: &Files, top: &str, epoch: u64) -> Result<Vec<u8>> {
    gzip(&tar(files, top, epoch)?)
}

/// Compresses bytes, without a name and a time in the result.
///
/// # Errors
/// None in practice: it is written to memory.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).context("bytes in memory cannot be compressed")
}

/// Returns files and their parent folders, each folder before its content.
fn with_folders<'a>(files: &'a Files, top: &str) -> BTreeMap<String, Option<&'a File>> {
    let mut entries = BTreeMap::new();
    for (name, file) in files.iter() {
        let name = format!("{top}{name}");
        for (end, _) in name.match_indices('/') {
            entries.insert(name[..=end].to_owned(), None);
        }
        entries.insert(name, Some(file));
    }
    entries
}

fn header(file: Option<&File>, epoch: u64) -> Result<Header> {
    let mut header = Header::new_gnu();
    header.set_entry_type(if file.is_some() { EntryType::Regular } else { EntryType::Directory });
    header.set_mode(file.map_or(Kind::Program, |file| file.kind).mode());
    header.set_size(file.map_or(0, |file| file.bytes.len() as u64));
    header.set_mtime(epoch);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn files(names: &[&str]) -> Files {
        let mut files = Files::default();
        for name in names {
            let kind = if name.starts_with("bin/") { Kind::Program } else { Kind::Data };
            files.put(name, kind, name.repeat(100).into_bytes()).unwrap();
        }
        files
    }

    #[test]
    fn archive_is_independent_of_file_order() {
        let one = tar_gz(&files(&["bin/tsp", "bin-2", "README", "share/man/tsp.1"]), "t-1/", 7).unwrap();
        let other = tar_gz(&files(&["share/man/tsp.1", "README", "bin-2", "bin/tsp"]), "t-1/", 7).unwrap();
        assert!(one == other);
        assert!(one != tar_gz(&files(&["bin/tsp"]), "t-1/", 7).unwrap());
        // Of gzip's header: no name, no time, no system.
        assert_eq!((one[3], &one[4..8], one[9]), (0, &[0; 4][..], 255));
    }

    #[test]
    fn archive_contains_only_given_files_and_no_machine_data() {
        let packed = tar_gz(&files(&["bin/tsp", "README"]), "./", 1_700_000_000).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(&packed[..]));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let header = entry.header().clone();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.username().unwrap(), Some("root"));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert_eq!(text, if name.ends_with('/') { String::new() } else { name[2..].repeat(100) });
            found.push((name, header.mode().unwrap()));
        }
        let name = |name: &str, mode| (name.to_owned(), mode);
        assert_eq!(
            found,
            [name("./", 0o755), name("./README", 0o644), name("./bin/", 0o755), name("./bin/tsp", 0o755)]
        );
    }

    #[test]
    fn long_name_is_not_truncated() {
        let names = ["a/".repeat(49) + "ab", "a/".repeat(50) + "b", "a/".repeat(150) + "b"];
        assert_eq!(names[0].len(), 100);
        let packed = tar(&files(&names.each_ref().map(String::as_str)), "./", 0).unwrap();
        assert!(packed == tar(&files(&names.each_ref().map(String::as_str)), "./", 0).unwrap());
        let mut archive = tar::Archive::new(&packed[..]);
        let entries = archive.entries().unwrap().map(Result::unwrap);
        let found: Vec<_> = entries.map(|entry| entry.path().unwrap().into_owned()).collect();
        for name in names {
            assert!(found.iter().any(|path| path.ends_with(&name)), "{name}");
        }
    }
}
