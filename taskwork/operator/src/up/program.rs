//! The program of the nodes, and its transfer.

use std::{env, fs, path::Path};

use taskwork_cli::{Failure, note};

use super::{
    machine::Machine,
    site::{Site, Text},
};

/// The number of digits of the digest in the name of a file.
const DIGITS: usize = 12;

/// The offset of the kind of machine in a program (ELF), and the kinds by the names of `uname`.
const MACHINE_AT: usize = 18;
const MACHINES: [(u16, &str); 3] = [(62, "x86_64"), (183, "aarch64"), (243, "riscv64")];

/// The beginning of a program of 64 bits with the least significant byte first, which all these machines have.
const ELF64: &[u8] = b"\x7fELF\x02\x01";

/// A program, by its content.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    /// The name of its file on the machines.
    pub(super) file: String,
    content: Vec<u8>,
}

/// The folder of a cluster on a machine.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) host: String,
    /// The number of the folder in its file system.
    pub(super) folder: String,
    has_program: bool,
}

impl Program {
    /// Reads a program at a path. A name alone may also be that of a program next to this one, or in `PATH`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let refused = |reason: &str| Failure::usage(format!("--program {}: {reason}", path.display()));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            return Err(refused("expected a file whose name has only letters, digits, dots, _ and -"));
        }
        let mut places = vec![path.to_owned()];
        if path.parent() == Some(Path::new("")) {
            let next = env::current_exe().ok().and_then(|this| Some(this.parent()?.join(path)));
            let known = env::var_os("PATH").unwrap_or_default();
            places.extend(next);
            places.extend(env::split_paths(&known).map(|folder| folder.join(path)));
        }
        let place = places.iter().find(|place| place.is_file());
        let place =
            place.ok_or_else(|| refused("there is no such file. Give the path of a built program"))?;
        let content = fs::read(place).map_err(|error| refused(&error.to_string()))?;
        let digest = blake3::hash(&content).to_hex();
        Ok(Self { name: name.to_owned(), file: format!("{name}-{}", &digest[..DIGITS]), content })
    }

    /// Looks at a machine, and refuses one that cannot run the program.
    pub(super) async fn examine(&self, machine: &Machine, site: &Site) -> Result<Place, Failure> {
        let said = machine.run(&site.cluster, &["check", &self.file], b"").await?;
        let words: Vec<&str> = said.split_whitespace().collect();
        let &[system, kind, has, host, folder] = words.as_slice() else {
            return Err(machine.failed(&format!("expected a POSIX shell, not one that prints {said:?}")));
        };
        self.check(system, kind).map_err(|reason| machine.failed(&reason))?;
        Ok(Place { host: host.to_owned(), folder: folder.to_owned(), has_program: has == "yes" })
    }

    /// Writes the files of a cluster and the program on a machine.
    pub(super) async fn install(
        &self,
        machine: &Machine,
        place: &Place,
        site: &Site,
        texts: &[Text],
    ) -> Result<(), Failure> {
        if !machine.is_here() {
            for (name, text) in texts {
                machine.write(&site.cluster, name, "600", text.as_bytes()).await?;
            }
        }
        if !place.has_program {
            let file = format!("bin/{}", self.file);
            machine.write(&site.cluster, &file, "700", &self.content).await?;
            note(&format!("{}: copied {} ({} bytes)", machine.name, self.name, self.content.len()));
        }
        Ok(())
    }

    /// Refuses a machine that cannot run the program.
    fn check(&self, system: &str, kind: &str) -> Result<(), String> {
        if system != "Linux" {
            return Err(format!("it runs {system}; nodes started by this command need Linux"));
        }
        if is_truncated(&self.content) {
            return Err(format!("the file of {} is incomplete: build or copy it again", self.name));
        }
        let built =
            self.content.get(MACHINE_AT..MACHINE_AT + 2).filter(|_| self.content.starts_with(b"\x7fELF"));
        let built = built.map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        match MACHINES.iter().find(|(number, _)| Some(*number) == built) {
            Some((_, needed)) if *needed != kind => {
                Err(format!("{} was built for {needed}, and the machine is {kind}", self.name))
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether a program lacks a part that its headers name.
fn is_truncated(content: &[u8]) -> bool {
    if !content.starts_with(ELF64) {
        return false;
    }
    let number = |at: u64, bytes: usize| {
        let at = usize::try_from(at).ok()?;
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(content.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(number))
    };
    // The offset, the size and the number of the headers of segments, and of sections.
    let tables = [(32, 54, 56), (40, 58, 60)]
        .map(|(offset, size, count)| Some((number(offset, 8)?, number(size, 2)?, number(count, 2)?)));
    let [Some(segments), Some(sections)] = tables else { return true };
    let end = |(offset, size, count): (u64, u64, u64)| offset.checked_add(size * count);
    let mut ends: Vec<Option<u64>> = vec![end(segments), end(sections)];
    let (first, size, count) = segments;
    // Of each segment, the offset and the size in the file.
    ends.extend((0..count).map(|segment| {
        let header = first.checked_add(segment * size)?;
        number(header.checked_add(8)?, 8)?.checked_add(number(header.checked_add(32)?, 8)?)
    }));
    ends.iter().any(|end| end.is_none_or(|end| end > content.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_another_processor_is_refused() {
        let this = Program::read(&env::current_exe().unwrap()).unwrap();
        let (here, other) =
            if cfg!(target_arch = "aarch64") { ("aarch64", "x86_64") } else { ("x86_64", "aarch64") };
        assert_eq!(this.check("Linux", here), Ok(()));
        assert!(this.check("Linux", other).unwrap_err().contains(&format!("built for {here}")));
        assert!(this.check("Darwin", here).unwrap_err().contains("Linux"));
    }

    #[test]
    fn truncated_program_is_refused() {
        let mut this = Program::read(&env::current_exe().unwrap()).unwrap();
        let here = env::consts::ARCH;
        let length = this.content.len();
        for left in [length - 1, length / 2, 64, 20] {
            this.content.truncate(left);
            assert!(
                this.check("Linux", here).unwrap_err().contains("is incomplete"),
                "{left} of {length} bytes"
            );
        }
        this.content = b"#!/bin/sh\n".to_vec();
        assert_eq!(this.check("Linux", here), Ok(()), "a script has no headers");
    }

    #[test]
    fn missing_program_is_refused_with_its_name() {
        let refused = Program::read(Path::new("no-such-program")).unwrap_err().to_string();
        assert!(refused.contains("--program no-such-program: there is no such file"), "{refused}");
    }
}
