"""Published click logs in their own layouts, one a file; `fultr.read_click_log` recognises them."""
