# Alone in its file: packer before 1.7 knows no required_plugins, and has the plugin built in.
packer {
  required_version = ">= 1.10.0"
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.2.8" # imds_support and metadata_options
    }
  }
}
