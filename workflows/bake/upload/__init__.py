"""An image becomes an AMI."""
