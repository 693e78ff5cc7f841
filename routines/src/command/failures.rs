//! Exit codes of errors.

use taskwork_cli::Failure;

use crate::{package::PackageError, resource::ResourceError, service::ServiceError, store::StoreError};

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } | StoreError::Package(PackageError::Changed { .. }) => Self::failed(error),
            _ => Self::usage(error),
        }
    }
}

impl From<ResourceError> for Failure {
    fn from(error: ResourceError) -> Self {
        match error {
            ResourceError::Io(_) => Self::failed(error),
            _ => Self::usage(error),
        }
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Client(error) => error.into(),
            ServiceError::Store(error) => error.into(),
            ServiceError::Resource(error) => error.into(),
            ServiceError::Invalid(_) => Self::usage(error),
            ServiceError::NoJob(_) => Self::not_found(error),
            _ => Self::failed(error),
        }
    }
}
