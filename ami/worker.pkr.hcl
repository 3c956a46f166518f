# The worker's AMI, made on EC2 by the recipe that also makes the local image: for those who bake in the cloud already.
#
#   sh wheels.sh
#   packer init .
#   packer build -var region=eu-central-1 -var 'ssh_from=["203.0.113.7/32"]' -var driver=closed .
#
# Unlike `regiondag bake ami`, this registers an image that nobody has seen joining a pool: start one worker first.
# (Conditions use regex_replace, for packer 1.6.6 knows neither regex nor regexall.)
# Permissions: policies/packer.json. Credentials are found as by every AWS tool; there is no variable for them.

variable "region" {
  type        = string
  description = "AWS region in which the image is made, such as eu-central-1."

  validation {
    condition     = var.region != "" && regex_replace(var.region, "^[a-z]{2}(-[a-z]+)+-[0-9]$", "") == ""
    error_message = "The region must be the name of an AWS region, such as eu-central-1."
  }
}

variable "instance_type" {
  type        = string
  description = "Type of the building machine. It needs no GPU: the driver is built for the image's kernel, not loaded."
  default     = "c7i.xlarge"
}

variable "driver" {
  type        = string
  description = "NVIDIA's driver: none, closed (also V100 and older) or open (Turing and newer)."
  default     = "closed"

  validation {
    condition     = contains(["none", "closed", "open"], var.driver)
    error_message = "The driver must be none, closed or open."
  }
}

variable "skip_pci_option" {
  type        = bool
  description = "Leave NVreg_CheckPCIConfigSpace=0 out even if the driver knows it."
  default     = false
}

variable "htcondor" {
  type        = string
  description = "HTCondor series that the image must turn out to have: the pool manager's, such as 23.9."
  default     = "23.9"

  validation {
    condition     = var.htcondor != "" && regex_replace(var.htcondor, "^[0-9]+[.][0-9]+$", "") == ""
    error_message = "The series must be two numbers with a point, such as 23.9."
  }
}

variable "source_ami_name" {
  type        = string
  description = "Pattern of the base image's name: Debian's own, trixie (13) for HTCondor 23.9."
  default     = "debian-13-amd64-*"

  validation {
    condition     = var.source_ami_name != "" && regex_replace(var.source_ami_name, "^debian-[0-9]+-amd64-.*$", "") == ""
    error_message = "The base must be a Debian image for amd64, such as debian-13-amd64-*."
  }
}

variable "source_ami_owner" {
  type        = string
  description = "Account that owns the base image; the default is Debian's."
  default     = "136693071363"

  validation {
    condition     = var.source_ami_owner != "" && regex_replace(var.source_ami_owner, "^[0-9]{12}$", "") == ""
    error_message = "The owner must be the 12 digits of an AWS account: an image of the same name can be anybody's."
  }
}

variable "subnet_id" {
  type        = string
  description = "Subnet of the building machine, with a way to the internet; empty: the default VPC's."
  default     = ""

  validation {
    condition     = regex_replace(var.subnet_id, "^(subnet-[0-9a-f]+)?$", "") == ""
    error_message = "The subnet must be an id such as subnet-0123456789abcdef0, or empty."
  }
}

variable "ssh_from" {
  type        = list(string)
  description = "Addresses from which Packer reaches the building machine, as CIDR blocks: yours, such as 203.0.113.7/32."

  validation {
    condition     = length(var.ssh_from) > 0 && contains(var.ssh_from, "0.0.0.0/0") == false
    error_message = "Give the addresses that Packer comes from; the whole internet is not one of them."
  }
}

variable "disk_size" {
  type        = number
  description = "GiB of the image's disk. A worker's can be larger, never smaller."
  default     = 12

  validation {
    condition     = var.disk_size >= 8
    error_message = "The base image alone has 8 GiB."
  }
}

variable "kms_key_id" {
  type        = string
  description = "KMS key that encrypts the image; empty: the account's default key for EBS."
  default     = ""
}

variable "tags" {
  type        = map(string)
  description = "More tags for everything that is made."
  default     = {}
}

locals {
  built = formatdate("YYYYMMDD-hhmm", timestamp())
  tags = merge(var.tags, {
    Name                 = "regiondag-${var.driver}-${local.built}"
    "regiondag:manifest" = "packer-${local.built}" # workers are only made of images that have this tag
    "regiondag:htcondor" = var.htcondor
    "regiondag:driver"   = var.driver
  })
}

source "amazon-ebs" "worker" {
  region          = var.region
  ami_name        = "regiondag-${var.driver}-${local.built}"
  ami_description = "regiondag worker: HTCondor ${var.htcondor}, driver ${var.driver}, made by Packer"
  instance_type   = var.instance_type
  subnet_id       = var.subnet_id
  ena_support     = true

  source_ami_filter {
    filters = {
      name                = var.source_ami_name
      architecture        = "x86_64"
      virtualization-type = "hvm"
      root-device-type    = "ebs"
    }
    owners      = [var.source_ami_owner]
    most_recent = true
  }

  launch_block_device_mappings {
    device_name           = "/dev/xvda"
    volume_size           = var.disk_size
    volume_type           = "gp3"
    iops                  = 3000 # what gp3 has by itself; 1.6.6 wants both said
    throughput            = 125
    encrypted             = true
    kms_key_id            = var.kms_key_id
    delete_on_termination = true
  }

  # IMDSv2 only: for the building machine, and for every instance of the image unless its launch says otherwise.
  # These are the two settings that packer 1.6.6, the last one in Debian, refuses. They are not moved into a file of
  # their own: a source cannot be spread over files, and a build that leaves them out must not look like this one.
  # The tests take exactly these lines out before they ask 1.6.6 about the rest.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }
  imds_support = "v2.0"

  ssh_username                          = "admin"
  ssh_clear_authorized_keys             = true
  temporary_security_group_source_cidrs = var.ssh_from

  tags            = local.tags
  snapshot_tags   = local.tags
  run_tags        = local.tags
  run_volume_tags = local.tags
}

build {
  sources = ["source.amazon-ebs.worker"]

  provisioner "shell" {
    inline = [
      "cloud-init status --wait || [ $? -eq 2 ]", # 2: done, with warnings
      "mkdir /tmp/regiondag",
    ]
  }

  provisioner "file" {
    source      = "${path.root}/provision"
    destination = "/tmp/regiondag"
  }

  provisioner "file" {
    source      = "${path.root}/wheels"
    destination = "/tmp/regiondag"
  }

  # Variables reach the shell as its environment, where nothing in them is a command.
  provisioner "shell" {
    environment_vars = [
      "DRIVER=${var.driver}",
      "PCI_FLAG=${var.skip_pci_option ? "--skip-pci-option" : ""}",
      "SERIES=${var.htcondor}",
    ]
    inline = [
      "sudo sh /tmp/regiondag/provision/provision.sh --outlet instance --driver \"$DRIVER\" $PCI_FLAG",
      "grep -qF \"HTCONDOR=$SERIES.\" /etc/regiondag-image || { grep HTCONDOR /etc/regiondag-image; echo \"not $SERIES, the manager's series\"; exit 1; }",
      "rm -rf /tmp/regiondag",
    ]
  }
}
