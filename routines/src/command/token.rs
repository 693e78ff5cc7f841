//! `token`: makes a token for a tenant.

use std::{
    fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf, process::ExitCode,
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
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(file);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|error| failed(error.to_string()))?;
    print(&format!("{token}\n"));
    Ok(ExitCode::SUCCESS)
}
