//! `token`: makes a token for a tenant.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use taskwork_cli::{Failure, command::print};

use crate::{
    gateway::{Role, line},
    tenant::Tenant,
};

#[derive(Debug, Args)]
pub(super) struct Token {
    /// The file of --tokens, which is created if it does not exist. It gets the hash of the token.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The name of a user, or a group of users, with own jobs and resources.
    #[arg(value_name = "TENANT", value_parser = tenant)]
    tenant: Tenant,
    /// The permitted requests.
    #[arg(value_name = "ROLE")]
    role: Role,
}

fn tenant(name: &str) -> Result<Tenant, &'static str> {
    Tenant::parse(name)
        .ok_or("expected 1 to 16 letters, digits, `.`, `-` or `_`, the first of them a letter or digit")
}

/// Adds the hash of a new token to a file, and prints the token.
pub(super) fn add_token(Token { file, tenant, role }: &Token) -> Result<ExitCode, Failure> {
    let failed = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let token = format!("{:032x}", rand::random::<u128>());
    let line = line(tenant, *role, &token).map_err(|why| failed(why.to_owned()))?;
    append(file, &line).map_err(|error| failed(error.to_string()))?;
    print(&format!("{token}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Adds a line to a file. First ends the last line if it has no end.
fn append(file: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(file)?;
    let mut last = *b"\n";
    if let Some(place) = file.metadata()?.len().checked_sub(1) {
        file.read_exact_at(&mut last, place)?;
    }
    let end = if last == *b"\n" { "" } else { "\n" };
    // At once, since another process may add a line.
    file.write_all(format!("{end}{line}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn line_is_added_after_the_end_of_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        append(&file, "first\n").unwrap();
        append(&file, "second\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "first\nsecond\n");
        fs::write(&file, "written by hand").unwrap();
        append(&file, "second\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "written by hand\nsecond\n");
    }
}
