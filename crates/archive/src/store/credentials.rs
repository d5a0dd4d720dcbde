//! Keys of S3 from the file that the tools of AWS share. `object_store` knows the other places:
//! variables, a token of a web identity, the role of a container or an instance.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// A profile of a credentials file. The file is read for each request, so that it can be replaced
/// while the program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialsFile {
    path: PathBuf,
    profile: String,
}

impl CredentialsFile {
    /// The file that the environment names, or the one in the home directory if it exists.
    pub(crate) fn from_environment() -> Option<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let named = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let path = named.or_else(|| {
            let path = PathBuf::from(variable("HOME")?).join(".aws/credentials");
            path.is_file().then_some(path)
        })?;
        let profile = variable("AWS_PROFILE").and_then(|name| name.into_string().ok());
        Some(Self {
            path,
            profile: profile.unwrap_or_else(|| "default".to_owned()),
        })
    }

    fn read(&self) -> io::Result<AwsCredential> {
        let mut text = String::new();
        File::open(&self.path)?
            .take(MAX_FILE)
            .read_to_string(&mut text)?;
        parse(&text, &self.profile).ok_or_else(|| {
            let profile = &self.profile;
            io::Error::other(format!("the profile {profile} has no pair of keys"))
        })
    }
}

impl CredentialProvider for CredentialsFile {
    type Credential = AwsCredential;

    // The signature is that which `async_trait` makes of the trait's.
    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            // Some hundred bytes of a file that is in the page cache: no thread is needed.
            self.read().map(Arc::new).map_err(|error| {
                let path = self.path.display().to_string();
                let source = format!("credentials file {path}: {error}").into();
                object_store::Error::Unauthenticated { path, source }
            })
        })
    }
}

/// The keys of a profile: lines `NAME = VALUE` after the line `[PROFILE]`.
fn parse(text: &str, profile: &str) -> Option<AwsCredential> {
    let mut is_profile = false;
    let (mut key_id, mut secret_key, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            is_profile = section.trim_end_matches(']').trim() == profile;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_profile) {
            let value = Some(value.trim().to_owned());
            match name.trim() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret_key = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    Some(AwsCredential {
        key_id: key_id?,
        secret_key: secret_key?,
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# keys of the fleet
[default]
aws_access_key_id = A
aws_secret_access_key = b=c
region = nowhere

[ other ]
aws_access_key_id=D
aws_secret_access_key=E
aws_session_token=F
[half]
aws_access_key_id=G
";

    #[test]
    fn keys_are_those_of_the_profile() {
        let keys = |profile| {
            let found = parse(FILE, profile)?;
            Some((found.key_id, found.secret_key, found.token))
        };
        let text = str::to_owned;
        assert_eq!(keys("default"), Some((text("A"), text("b=c"), None)));
        let other = (text("D"), text("E"), Some(text("F")));
        assert_eq!(keys("other"), Some(other));
        assert_eq!(keys("half"), None);
        assert_eq!(keys("absent"), None);
    }

    #[tokio::test]
    async fn a_replaced_file_is_read_and_a_missing_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let file = CredentialsFile {
            path: path.clone(),
            profile: "default".to_owned(),
        };
        let error = file.get_credential().await.unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        std::fs::write(&path, FILE).unwrap();
        assert_eq!(file.get_credential().await.unwrap().key_id, "A");
        std::fs::write(&path, FILE.replace(" A", " Z")).unwrap();
        assert_eq!(file.get_credential().await.unwrap().key_id, "Z");
    }
}
