//! The command line of `relayd archive`.

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  relayd archive check file:///srv/archive       An archive in a directory
  relayd archive check s3://traces/fleet         One in a bucket of S3, with keys of the environment
  relayd archive check s3://traces/fleet --archive-endpoint https://ceph.example.org
                                                 One in a bucket of another server
  relayd archive ls file:///srv/archive          List the sessions
  relayd archive verify file:///srv/archive      Read every object, and compare all checksums

URL is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY.

Variables:
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
                               Keys of s3:// [default: the profile AWS_PROFILE of the file
                               AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials; otherwise the role of
                               the container or instance]
  AWS_REGION                   Region of s3:// [default: us-east-1]
  AWS_ENDPOINT_URL             Same as --archive-endpoint, for s3://
  GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY
                               Credentials of gs:// and az://
  SSL_CERT_FILE                Certificates of CAs to trust [default: those of the system]

Exit status:
  0  check: the store can hold an archive; ls: all sessions are listed; verify: no object is damaged
  1  Otherwise, or if the command line is wrong";

/// The arguments of `relayd archive`.
#[derive(Debug, Clone, Args)]
#[command(disable_help_subcommand = true, after_help = EXAMPLES)]
pub struct ArchiveArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: ArchiveCommand,
}

/// What `relayd archive` does.
#[derive(Debug, Clone, Subcommand)]
pub enum ArchiveCommand {
    /// Let creates of objects race, read and list them, and print how long each call takes
    Check(ArchiveLocation),
    /// List the sessions, oldest first
    Ls {
        /// The archive.
        #[command(flatten)]
        location: ArchiveLocation,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read every object, and compare all checksums
    Verify(ArchiveLocation),
}

/// Where an archive is.
#[derive(Debug, Clone, Args)]
pub struct ArchiveLocation {
    /// URL of the archive, such as s3://BUCKET/PREFIX
    pub url: String,

    /// URL of the server, if it is not the provider's own
    #[arg(long, value_name = "URL")]
    pub archive_endpoint: Option<String>,
}
